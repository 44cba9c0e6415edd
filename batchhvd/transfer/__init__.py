"""Copying files to and from a share."""
