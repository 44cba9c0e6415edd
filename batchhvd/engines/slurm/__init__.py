"""The engine for Slurm: a task is one batch job, and each of its nodes is one node of the job's allocation."""

from batchhvd.engines.slurm.engine import Slurm

__all__ = ["Slurm"]
