"""The only state of the service."""
