"""Measurements with ranks on this machine: how fast they train, and whether they train correctly."""
