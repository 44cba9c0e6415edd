"""How long a file system may hide what another node has written."""

from __future__ import annotations

import os
import re
from pathlib import Path

LOCAL = 3.0
"""Seconds on a file system of this machine."""
SHARED = 60.0
"""Seconds on any other: clients of NFS trust what they know of a directory for up to a minute (acdirmax)."""
_LOCAL = re.compile(r"ext[234]|xfs|btrfs|zfs|tmpfs|ramfs|overlay|f2fs|bcachefs")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def settling(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> float:
    """Returns after how many seconds everybody sees a file that another node has written into a folder."""
    try:
        kind = _kind(os.path.realpath(folder), mounts.read_text(encoding="utf-8", errors="surrogateescape"))
    except OSError:
        return SHARED
    return LOCAL if _LOCAL.fullmatch(kind) else SHARED


def _kind(path: str, table: str) -> str:
    """Returns the kind of the file system that holds a path; of two on one place, the later one counts."""
    best, kind = "", ""
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        place = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), before.split()[4])
        if len(place) >= len(best) and os.path.commonpath([place, path]) == place:
            best, kind = place, after.split()[0]
    return kind
