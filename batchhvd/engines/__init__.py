"""Engines: what runs a job's ranks on its nodes. ``base`` is the seam; each other module is one engine."""
