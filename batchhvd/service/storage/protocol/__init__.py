"""The protocol of Azure Storage: requests, responses, errors, XML, keys and links."""
