"""Where a path that a job names lies, and how it gets there."""
