"""Judgement without side effects: what a job would do, and why something is as it is."""
