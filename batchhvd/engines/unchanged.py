"""Records that are read again only when their file has changed: running tasks are looked at ten times a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Version = tuple[int, ...]
_LARGEST = 16 * 1024  # bytes of a file whose record is kept
_MOST = 8192  # records that are kept
_FRESH = 2.0  # seconds in which a file system may give two versions of a file the same times


class Unchanged(Generic[K, T]):
    """Reads records, each again only when its file has changed; nobody may change what it returns."""

    def __init__(self, path: Callable[[K], str], read: Callable[[K], T]) -> None:
        """Creates it.

        Args:
            path: returns the path of a record's file.
            read: reads a record; what it raises is not kept.
        """
        self._path, self._read = path, read
        self._kept = lru_cache(_MOST)(lambda key, seen: read(key))

    def __call__(self, key: K) -> T | None:
        """Returns a record, None if it has no file; raises what reading it raises."""
        seen = _version(self._path(key))
        if seen is None:
            return None
        return self._kept(key, seen) if seen else self._read(key)


def _version(path: str) -> Version | None:
    """Returns what differs between two versions of a file, None if it does not exist; a link is not followed.

    It is empty for what is read each time: a file that has just been written, or a large one. A job cannot set ctime.
    """
    try:
        facts = os.lstat(path)
    except FileNotFoundError:
        return None
    # If the clock was set back, a file comes from the future; it counts as fresh.
    if facts.st_size > _LARGEST or facts.st_ctime > time.time() - _FRESH:
        return ()
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns, facts.st_mtime_ns, facts.st_size
