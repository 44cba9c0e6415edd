"""Azure Files over REST, on plain directories."""
