"""batchhvd: Batch AI's resource model, alive again."""

from batchhvd._version import __version__

__all__ = ["__version__"]
