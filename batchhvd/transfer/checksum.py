"""Local files, and whether two are the same: sizes and MD5s, and where a file of a share keeps its MD5."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from batchhvd.errors import SpecError

if TYPE_CHECKING:
    from azure.storage.fileshare import FileProperties

PIECE = 4 << 20
"""Bytes of one request. Source: Azure Files accepts at most 4 MiB in a request, and checks an MD5 up to that size."""

READABLE = "make it readable, or move it away"
"""What to do about a local file that cannot be read."""

PROMISED = "batchhvd_md5"  # metadata: the MD5, in hex, that a file will have
WRITTEN = "batchhvd_written"  # metadata: when the file with the MD5 of its properties was written


def known_md5(there: FileProperties) -> bytes:
    """Returns the file's MD5; b"" if it is unknown, as for files that a job wrote."""
    md5 = there.content_settings.content_md5
    kept = (there.metadata or {}).get(WRITTEN) == str(there.last_write_time)
    return bytes(md5) if md5 and kept else b""


@contextmanager
def usable(path: Path, verb: str) -> Iterator[None]:
    """Says which local file is the reason if the system refuses an operation on it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise  # a connection's, not the file's
        problem = f"{path} cannot be {verb}: {error.strerror}"
        raise SpecError(problem, remedy="make room, or choose another place" if verb != "read" else READABLE) from error


def size_of(path: Path) -> int:
    """Returns the size of a local file in bytes."""
    return path.stat().st_size


def md5_of(path: Path) -> bytes:
    """Returns the MD5 of a local file."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as data:
        while piece := data.read(PIECE):
            digest.update(piece)
    return digest.digest()
