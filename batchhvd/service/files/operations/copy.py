"""Operations that copy: whole files, and ranges, from a URL of this service."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

from batchhvd.service.files.disk import content, tree
from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.operations.condition import check_write
from batchhvd.service.files.operations.file import enter, noted
from batchhvd.service.files.operations.properties import written
from batchhvd.service.files.protocol.byte_range import RANGE_BYTES, asked, bounds
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request, Target
from batchhvd.service.files.protocol.response import Response


def copy(disk: Disk, request: Request) -> Response:
    """Copies a file of this service; the copy is done when the answer comes."""
    share, names = disk.share(request.target), request.target.names
    with _source(disk, request.origin()) as (fd, facts), tree.spot(share, names) as place, disk.stage() as staged:
        content.copy(fd, staged.fd)
        content.stamp(staged.fd)
        receipt = _receipt(request, staged.fd)
        about = enter(disk, request, place, staged, {**facts, **_said(request), "copy": receipt})
    return Response(202, {**written(about), **{name: receipt[name] for name in ("x-ms-copy-id", "x-ms-copy-status")}})


def put_from_url(disk: Disk, request: Request) -> Response:
    """Writes a range with the bytes of a range of another file of this service."""
    into, part = asked(request), _source_range(request)
    if into is None or into[0] is None or into[1] is None or into[1] - into[0] != part[1] - part[0]:
        raise refusal("InvalidHeaderValue", "Both ranges must name first and last byte and have the same length.")
    if part[1] - part[0] >= RANGE_BYTES:
        raise refusal("RequestBodyTooLarge")
    with _source(disk, request.origin()) as (origin, _):
        if bounds(part, os.fstat(origin).st_size) != part:
            raise refusal("InvalidRange", "It lies outside the source.")
        body = os.pread(origin, part[1] - part[0] + 1, part[0])
    with tree.file(disk.share(request.target), request.target.names, os.O_RDWR) as (fd, _):
        check_write(request, os.fstat(fd))
        if into[1] >= os.fstat(fd).st_size:
            raise refusal("InvalidRange", "Set the file's size first.")
        content.write(fd, [body], into[0])
        content.stamp(fd)
        return Response(201, written(os.fstat(fd)))


def abort(disk: Disk, request: Request) -> Response:
    """Refuses to stop a copy: it has ended already."""
    raise refusal("NoPendingCopyOperation")


@contextmanager
def _source(disk: Disk, source: Target) -> Iterator[tuple[int, Facts]]:
    with tree.file(disk.share(source), source.names) as (fd, place):
        yield fd, disk.facts(source, place.path, os.fstat(fd))


def _said(request: Request) -> Facts:
    """Returns what a request says about the copy; the source's own facts stand for the rest."""
    noted_now, said = noted(request), Facts()
    if noted_now["metadata"]:
        said["metadata"] = noted_now["metadata"]
    if noted_now["content"]:
        said["content"] = noted_now["content"]
    if noted_now["created"]:
        said["created"] = noted_now["created"]
    return said


def _receipt(request: Request, fd: int) -> dict[str, str]:
    about = os.fstat(fd)
    return {
        "x-ms-copy-id": str(uuid.uuid4()),
        "x-ms-copy-source": request.header("x-ms-copy-source").partition("?")[0],  # what follows may be a link's secret
        "x-ms-copy-status": "success",
        "x-ms-copy-progress": f"{about.st_size}/{about.st_size}",
        "x-ms-copy-completion-time": formatdate(about.st_mtime, usegmt=True),
    }


def _source_range(request: Request) -> tuple[int, int]:
    text = request.required("x-ms-source-range")
    first, dash, last = text.removeprefix("bytes=").partition("-")
    if not (text.startswith("bytes=") and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise refusal("InvalidHeaderValue", "x-ms-source-range must be written bytes=first-last.")
    return int(first), int(last)
