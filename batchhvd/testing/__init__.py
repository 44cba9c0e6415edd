"""What tests of other programs get from batchhvd: a pytest plugin with a file service and a Batch AI service.

pytest finds the plugin by itself (``batchhvd.testing.plugin``); the classes below are named here for annotations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchhvd.testing.batchai import BatchAI
    from batchhvd.testing.faults import Fault
    from batchhvd.testing.files import AzureFiles

__all__ = ["AzureFiles", "BatchAI", "Fault"]
_HOME = {"AzureFiles": "files", "BatchAI": "batchai", "Fault": "faults"}


def __getattr__(name: str) -> object:
    """Loads a class when it is first asked for: pytest imports this package at every start."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
