"""Engines run a job's ranks on its nodes. ``base`` is the interface; ``processes`` and ``slurm`` are the engines."""
