"""What Azure Files and blobs have in common: requests, keys and links, conditions, where things lie on the disk."""
