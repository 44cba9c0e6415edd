"""The protocol of Azure Files: requests, responses, refusals, XML, keys and links."""
