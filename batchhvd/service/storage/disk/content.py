"""The content of an open file: its holes and its data, writes at a place, its time of last write."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

_VECTORS = 1000  # pieces in one call to the system, which takes 1024
_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_PIECE = 4 << 20  # bytes read or cleared at a time
_SECTOR = 512  # bytes of zeros, at a multiple of them, that count as a hole
_ZEROS = bytes(_SECTOR)
_TICK, _TICKS = 0.001, 30  # seconds to wait for the system's next tick, and how often; a tick takes up to 10 ms


def stamp(fd: int, changed: int | None = None) -> None:
    """Sets a file's time of last write in nanoseconds since 1970, to now by default, and so its ETag.

    Before Linux 6.13 the system's own clock for this ticks a few hundred times a second; two writes within one tick
    would leave one ETag for two contents.
    """
    about = os.fstat(fd)
    with suppress(PermissionError):  # we may write this file but do not own it: the system's tick must do
        os.utime(fd, ns=(about.st_atime_ns, time.time_ns() if changed is None else changed))


def touch(fd: int, before: os.stat_result, written: int) -> os.stat_result:
    """Sets a file's or directory's time of last write and returns what the system knows of it then.

    Its time of change, and so its ETag, is another one than before, if need be after the system's next tick.
    """
    for _ in range(_TICKS):
        stamp(fd, written)
        about = os.fstat(fd)
        if (about.st_mtime_ns, about.st_ctime_ns) != (before.st_mtime_ns, before.st_ctime_ns):
            return about
        time.sleep(_TICK)
    return about


def data(fd: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yields the stretches of an open file that hold data, as first and last byte, between two bytes."""
    position = first
    while position <= last:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole from here on
                return
            raise
        position = os.lseek(fd, start, os.SEEK_HOLE)
        if start <= last:
            yield start, min(position - 1, last)


def write(fd: int, pieces: Sequence[bytes], offset: int) -> None:
    """Writes pieces one after another at a place in an open file."""
    for start in range(0, len(pieces), _VECTORS):
        batch = pieces[start : start + _VECTORS]
        size, done = sum(map(len, batch)), _pwritev(fd, batch, offset)
        while done < size:  # the disk is nearly full: the rest, or the error that says so
            done += os.pwrite(fd, b"".join(batch)[done:], offset + done)
        offset += size


def _pwritev(fd: int, pieces: Sequence[bytes], offset: int) -> int:
    if hasattr(os, "pwritev"):
        return os.pwritev(fd, pieces, offset)
    return os.pwrite(fd, b"".join(pieces), offset)  # not every POSIX system has it


def punch(fd: int, offset: int, length: int) -> None:
    """Frees a range of a file, which then reads as zeros; writes zeros if the file system cannot do that."""
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is not None:
        arguments = fd, _PUNCH_HOLE, ctypes.c_int64(offset), ctypes.c_int64(length)
        if fallocate(*arguments) == 0:
            return
    for start in range(offset, offset + length, _PIECE):
        write(fd, [bytes(min(_PIECE, offset + length - start))], start)


def copy(source: int, target: int) -> None:
    """Copies an open file into another, empty one; holes stay holes."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for first, last in data(source, 0, size - 1):
        for start in range(first, last + 1, _PIECE):
            write(target, [os.pread(source, min(_PIECE, last + 1 - start), start)], start)
