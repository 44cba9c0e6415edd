"""Directories of the machine that jobs may mount: those that the owner of the service allows, and everything below."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def refusal(directory: str, allowed: Sequence[str]) -> str:
    """Returns why a directory may not be mounted, as the end of a sentence, or "" when it may.

    A symbolic link is judged by its target.

    Args:
        directory: an absolute path.
        allowed: the directories that are allowed, each with everything below it.
    """
    real = os.path.realpath(directory)
    if not any(Path(real).is_relative_to(os.path.realpath(entry)) for entry in allowed):
        return (
            f"the directory '{directory}' of the machine, which the owner of this service has not allowed: "
            f"batchhvd serve --allow-directory '{real}'"
        )
    return "" if os.path.isdir(real) else f"the directory '{directory}' of the machine, which does not exist"
