"""Renames, and copies from a URL of this service."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

from batchhvd.service.files.disk import tree
from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.disk.tree import Spot
from batchhvd.service.files.operations.file import enter, existing, noted
from batchhvd.service.files.operations.properties import check_write, content, described, stamp, written
from batchhvd.service.files.operations.range import RANGE_BYTES, asked, bounds, data, write
from batchhvd.service.files.protocol.refusal import refuse
from batchhvd.service.files.protocol.request import Request, Target
from batchhvd.service.files.protocol.response import Answer


def rename(disk: Disk, request: Request) -> Answer:
    """Gives a file or directory another path in its share, with all that is noted of it."""
    source, target = request.origin(), request.target
    wants_directory = request.query.get("restype") == "directory"
    if (source.account, source.share) != (target.account, target.share) or not target.names:
        raise refuse("InvalidHeaderValue", "A file or directory is renamed within its share.")
    share = disk.share(target)
    with tree.spot(share, source.names) as old, tree.spot(share, target.names) as new:
        if stat.S_ISDIR(old.stat().st_mode) != wants_directory:
            raise refuse("ResourceNotFound" if wants_directory else "ResourceTypeMismatch")
        _check_room(request, old, new)
        os.rename(old.name, new.name, src_dir_fd=old.fd, dst_dir_fd=new.fd)
        disk.move(target, old.path, new.path)
        facts = _renamed(disk, request, new)
        return Answer(200, described(new.stat(), facts))


def copy(disk: Disk, request: Request) -> Answer:
    """Copies a file of this service; the copy is done when the answer comes."""
    share, names = disk.share(request.target), request.target.names
    with _source(disk, request.origin()) as (fd, facts), tree.spot(share, names) as place, disk.stage() as staged:
        _copy_data(fd, staged.fd)
        stamp(staged.fd)
        receipt = _receipt(request, staged.fd)
        said = {name: value for name, value in noted(request).items() if value}
        about = enter(disk, request, place, staged, {**facts, **said, "copy": receipt})
    return Answer(202, {**written(about), **{name: receipt[name] for name in ("x-ms-copy-id", "x-ms-copy-status")}})


def put_from_url(disk: Disk, request: Request) -> Answer:
    """Writes a range with the bytes of a range of another file of this service."""
    into, part = asked(request), _source_range(request)
    if into is None or into[0] is None or into[1] is None or into[1] - into[0] != part[1] - part[0]:
        raise refuse("InvalidHeaderValue", "Both ranges say first and last byte, and are equally long.")
    if part[1] - part[0] >= RANGE_BYTES:
        raise refuse("RequestBodyTooLarge")
    with _source(disk, request.origin()) as (origin, _):
        if bounds(part, os.fstat(origin).st_size) != part:
            raise refuse("InvalidRange", "It is outside the source.")
        body = os.pread(origin, part[1] - part[0] + 1, part[0])
    with tree.file(disk.share(request.target), request.target.names, os.O_RDWR) as (fd, _):
        check_write(request, os.fstat(fd))
        if into[1] >= os.fstat(fd).st_size:
            raise refuse("InvalidRange", "Set the file's size first.")
        write(fd, [body], into[0])
        stamp(fd)
        return Answer(201, written(os.fstat(fd)))


def abort_copy(disk: Disk, request: Request) -> Answer:
    """Refuses to stop a copy: it has ended already."""
    raise refuse("NoPendingCopyOperation")


def _check_room(request: Request, old: Spot, new: Spot) -> None:
    if new.names[: len(old.names)] == old.names and new.names != old.names:
        raise refuse("InvalidHeaderValue", "A directory cannot move into itself.")
    there = existing(new)
    check_write(request, there)
    if there is None:
        return
    if stat.S_ISDIR(there.st_mode) or stat.S_ISDIR(old.stat().st_mode):
        raise refuse("ResourceAlreadyExists")
    if request.header("x-ms-file-rename-replace-if-exists").lower() != "true":
        raise refuse("ResourceAlreadyExists", "Ask to replace it, or choose another name.")


def _renamed(disk: Disk, request: Request, place: Spot) -> Facts:
    about = place.stat()
    facts = disk.facts(request.target, place.path, about)
    if request.metadata():
        facts["metadata"] = request.metadata()
    if content(request):
        facts["content"] = {**facts.get("content", {}), **content(request)}
    disk.note(request.target, place.path, about, facts)
    return facts


@contextmanager
def _source(disk: Disk, source: Target) -> Iterator[tuple[int, Facts]]:
    with tree.file(disk.share(source), source.names) as (fd, place):
        yield fd, disk.facts(source, place.path, os.fstat(fd))


def _copy_data(source: int, target: int) -> None:
    """Copies an open file into another, empty one; holes stay holes."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for first, last in data(source, 0, size - 1):
        for start in range(first, last + 1, RANGE_BYTES):
            write(target, [os.pread(source, min(RANGE_BYTES, last + 1 - start), start)], start)


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
        raise refuse("InvalidHeaderValue", "x-ms-source-range is written bytes=first-last.")
    return int(first), int(last)
