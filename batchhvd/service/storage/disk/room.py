"""How much a share takes, and whether there is room for more below its quota."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attrs import define

_KEPT = 100  # a count is good for so many times as long as it took
_LEAST = 1.0  # seconds that a count is good for


def usage(folder: Path) -> int:
    """Returns how many bytes a tree takes on the disk; links are not followed."""
    return _sum(folder, lambda about: about.st_blocks * 512)


def length(folder: Path) -> int:
    """Returns how many bytes the files of a tree have in all; links are not followed."""
    return _sum(folder, lambda about: about.st_size)


@define
class _Count:
    size: int
    good_until: float


class Room:
    """Remembers for a moment how much each share takes, so that not every write counts all its files."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Path, _Count] = {}

    def fits(self, share: Path, more: int, quota: int) -> bool:
        """Says whether a share may grow by a number of bytes; counts its files anew before it says no."""
        if _taken(share) + more <= quota:  # all that the file system holds would fit
            return True
        with self._lock:
            count = self._counts.get(share)
            if count is None or time.monotonic() > count.good_until or count.size + more > quota:
                count = self._counts[share] = _counted(share)
            if count.size + more > quota:
                return False
            count.size += more
            return True


def _counted(share: Path) -> _Count:
    begin = time.monotonic()
    size = usage(share)
    end = time.monotonic()
    return _Count(size, end + max(_LEAST, _KEPT * (end - begin)))


def _taken(share: Path) -> int:
    about = os.statvfs(share)
    return (about.f_blocks - about.f_bfree) * about.f_frsize


def _sum(folder: Path, bytes_of: Callable[[os.stat_result], int]) -> int:
    size = 0
    for _, _, names, fd in os.fwalk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a job has deleted it meanwhile
                size += bytes_of(os.stat(name, dir_fd=fd, follow_symlinks=False))
    return size
