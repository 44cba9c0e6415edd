"""Values that resources return: entries of a directory, what a training reported."""
