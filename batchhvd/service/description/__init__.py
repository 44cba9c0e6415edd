"""The published description of Batch AI, and the check of documents against it."""
