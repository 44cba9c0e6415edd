"""What the machine refuses, in words: a full disk, a damaged database."""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
from pathlib import Path

from batchhvd.errors import ServiceError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_LEAST = 64 * 1024  # bytes below which nothing useful can be written


def is_disk_full(error: BaseException) -> bool:
    """Says whether an error means that a disk has no room."""
    if isinstance(error, sqlite3.OperationalError):
        return "disk is full" in str(error)
    return isinstance(error, OSError) and error.errno in _FULL


def disk_full(root: Path) -> str:
    """Returns the sentence about a full disk."""
    return f"The disk of {root} is full: free some space there; what was acknowledged is kept."


def disk_problem(root: Path) -> str:
    """Returns the sentence about a full disk if the disk is full now, else ""."""
    try:
        facts = os.statvfs(root)
    except OSError:
        return ""
    return disk_full(root) if facts.f_bavail * facts.f_frsize < _LEAST else ""


def told(error: BaseException, root: Path) -> ServiceError | None:
    """Returns what an error of the machine means to a client, None if it is a fault of the service."""
    if is_disk_full(error):
        return ServiceError(disk_full(root), status=507, code="DiskFull")
    if is_damage(error):
        return ServiceError(damaged(root / "state.sqlite", root, error), status=500, code="StateDamaged")
    return None


def is_damage(error: BaseException) -> bool:
    """Says whether an error means that a database is damaged."""
    return type(error) is sqlite3.DatabaseError


def damaged(path: Path, root: Path, why: object) -> str:
    """Returns the sentence about a damaged database of a root."""
    return (
        f"{path} is damaged ({why}). `batchhvd --root {shlex.quote(str(root))} serve --recover` keeps it aside, "
        "and starts with what can be read from it."
    )
