"""Mounts: which share a path of a job is on, and how the job gets there."""
