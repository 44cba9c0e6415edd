"""The protocol of Azure Files: requests, responses, errors, XML, keys and links."""
