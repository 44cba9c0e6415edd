"""Judgement without side effects: what a job would do, and why a job or a cluster is in its state."""
