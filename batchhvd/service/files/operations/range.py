"""Ranges of a file: how they are asked for, written, cleared and listed."""

from __future__ import annotations

import base64
import ctypes
import errno
import hashlib
import hmac
import os
import re
from collections.abc import Iterator, Sequence

from batchhvd.service.files.disk import tree
from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.operations.properties import check_write, stamp, written
from batchhvd.service.files.protocol import xml
from batchhvd.service.files.protocol.refusal import refuse
from batchhvd.service.files.protocol.request import Request, TakesLong
from batchhvd.service.files.protocol.response import Answer, document

RANGE_BYTES = 4 << 20  # that one request writes at most, or checks with an MD5
_VECTORS = 1000  # pieces in one call to the system, which takes 1024
_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_RANGE = re.compile(r"bytes=(?:([0-9]{1,19})-([0-9]{0,19})|-([0-9]{1,19}))")

Range = tuple[int | None, int | None]


def asked(request: Request) -> Range | None:
    """Returns the range that a request asks for: first and last byte; no last: to the end; no first: the last n bytes.

    None where it asks for none. Both spellings count, the storage client's before HTTP's.
    """
    text = request.header("x-ms-range") or request.header("range")
    if not text:
        return None
    found = _RANGE.fullmatch(text.strip())
    first, last = (int(found[1]) if found[1] else None, int(found[2] or found[3] or -1)) if found else (None, -1)
    if not found or (first is not None and found[2] and last < first):
        raise refuse("InvalidHeaderValue", "A range is written bytes=first-last.")
    return first, (last if found[2] or found[3] else None)


def bounds(part: Range, size: int) -> tuple[int, int] | None:
    """Returns first and last byte of a range within a file of this size; None where nothing of it is inside."""
    first, last = part
    if first is None:
        first, last = max(0, size - (last or 0)), size - 1 if last else -1
    last = size - 1 if last is None else min(last, size - 1)
    return (first, last) if first <= last and first < size else None


def put(disk: Disk, request: Request) -> Answer:
    """Writes or clears a range inside a file; the whole body, its length and MD5 checked, or nothing."""
    first, last = _exact(request)
    clear = request.required("x-ms-write").lower() == "clear"
    if clear and request.hurried:
        raise TakesLong
    if not clear:
        _check_body(request, last - first + 1)
    with tree.file(disk.share(request.target), request.target.names, os.O_RDWR) as (fd, _):
        about = os.fstat(fd)
        check_write(request, about)
        if last >= about.st_size:
            raise refuse("InvalidRange", "Set the file's size first.")
        if clear:
            _punch(fd, first, last - first + 1)
        else:
            write(fd, request.body, first)
        stamp(fd, about.st_mtime_ns if request.header("x-ms-file-last-write-time").lower() == "preserve" else None)
        about = os.fstat(fd)
    md5 = {"content-md5": request.header("content-md5")} if request.header("content-md5") else {}
    return Answer(201, {**written(about), **md5})


def list_ranges(disk: Disk, request: Request) -> Answer:
    """Lists the ranges that hold data, of the whole file or of one range; holes are left out."""
    part = asked(request) or (0, None)
    with tree.file(disk.share(request.target), request.target.names) as (fd, _):
        about = os.fstat(fd)
        span = bounds(part, about.st_size)
        found = list(data(fd, *span)) if span else []
    return document(xml.ranges(found), {**written(about), "x-ms-content-length": str(about.st_size)})


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


def _exact(request: Request) -> tuple[int, int]:
    part = asked(request)
    if part is None or part[0] is None or part[1] is None:
        raise refuse("InvalidHeaderValue", "x-ms-range says first and last byte: bytes=first-last.")
    return part[0], part[1]


def _check_body(request: Request, length: int) -> None:
    if request.header("x-ms-write").lower() != "update":
        raise refuse("InvalidHeaderValue", "x-ms-write is 'update' or 'clear'.")
    if length > RANGE_BYTES:
        raise refuse("RequestBodyTooLarge")
    if length != request.size:
        raise refuse("InvalidHeaderValue", "The range's length is not the body's.")
    check_md5(request)


def check_md5(request: Request) -> None:
    """Refuses a body that does not have the MD5 of its Content-MD5 header, where there is one."""
    promised = request.header("content-md5")
    if not promised:
        return
    hashed = hashlib.md5(usedforsecurity=False)
    for piece in request.body:
        hashed.update(piece)
    digest = base64.b64encode(hashed.digest()).decode()
    if not hmac.compare_digest(digest.encode(), promised.encode()):
        raise refuse("Md5Mismatch")


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


def _punch(fd: int, offset: int, length: int) -> None:
    """Frees a range of a file, which then reads as zeros; writes zeros where the file system cannot do that."""
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is not None:
        arguments = fd, _PUNCH_HOLE, ctypes.c_int64(offset), ctypes.c_int64(length)
        if fallocate(*arguments) == 0:
            return
    for start in range(offset, offset + length, RANGE_BYTES):
        write(fd, [bytes(min(RANGE_BYTES, offset + length - start))], start)
