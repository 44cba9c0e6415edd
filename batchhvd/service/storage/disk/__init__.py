"""Where shares lie on the disk, and what is noted beside them."""
