"""Operations on directories."""

from __future__ import annotations

import os
import stat

from batchhvd.service.files.operations.properties import described, read_headers
from batchhvd.service.files.operations.smb import note_smb, said_change, written_at
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.content import stamp, touch
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.shown_headers import metadata, written


def create(disk: Disk, request: Request) -> Response:
    """Creates one directory; its parent must exist."""
    if not request.target.names:
        raise refusal("ResourceAlreadyExists", "Every share has its root.")
    facts = Facts(metadata=request.metadata())
    note_smb(disk, request, facts)
    with tree.spot(disk.share(request.target), request.target.names) as place:
        os.mkdir(place.name, dir_fd=place.fd)
        if request.header("x-ms-file-last-write-time"):
            _set_time(place.fd, place.name, request)
        about = place.stat()
        facts["changed"] = said_change(request, about)
        disk.note(request.target, place.path, about, facts)
        return Response(201, described(about, facts, place.parent_id()))


def _set_time(parent: int, name: str, request: Request) -> None:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        stamp(fd, written_at(request, os.fstat(fd).st_mtime_ns))
    finally:
        os.close(fd)


def properties(disk: Disk, request: Request) -> Response:
    """Returns a directory's times, attributes, permission and metadata."""
    with tree.directory(disk.share(request.target), request.target.names) as place:
        about = place.stat()
        facts = disk.facts(request.target, noted_path(place.path), about)
        return Response(200, {"x-ms-type": "Directory", **read_headers(about, facts, place.parent_id())})


def read_metadata(disk: Disk, request: Request) -> Response:
    """Returns only a directory's metadata."""
    with tree.directory(disk.share(request.target), request.target.names) as place:
        about = place.stat()
        facts = disk.facts(request.target, noted_path(place.path), about)
    return Response(200, {**written(about, facts), **metadata(facts)})


def set_properties(disk: Disk, request: Request) -> Response:
    """Sets a directory's times, attributes and permission."""
    with tree.directory(disk.share(request.target), request.target.names) as place, disk.noting():
        before = place.stat()
        facts = disk.facts(request.target, noted_path(place.path), before)
        note_smb(disk, request, facts)
        about = touch(place.fd, before, written_at(request, before.st_mtime_ns, "preserve"))
        facts["changed"] = said_change(request, about)
        disk.note(request.target, noted_path(place.path), about, facts)
        return Response(200, described(about, facts, place.parent_id()))


def set_metadata(disk: Disk, request: Request) -> Response:
    """Replaces a directory's metadata."""
    said = request.metadata()
    with tree.directory(disk.share(request.target), request.target.names) as place, disk.noting():
        before = place.stat()
        facts = disk.facts(request.target, noted_path(place.path), before)
        disk.note(request.target, noted_path(place.path), before, {**facts, "metadata": said})
        return Response(200, written(touch(place.fd, before, before.st_mtime_ns)))


def delete(disk: Disk, request: Request) -> Response:
    """Deletes an empty directory."""
    if not request.target.names:
        raise refusal("ResourceTypeMismatch", "The root goes with its share.")
    with tree.spot(disk.share(request.target), request.target.names) as place:
        if not stat.S_ISDIR(place.stat().st_mode):
            raise refusal("ResourceNotFound", "There is a file of this name.")
        os.rmdir(place.name, dir_fd=place.fd)
        disk.forget(request.target, place.path)
    return Response(202)


def noted_path(path: str) -> str:
    """Returns the path under which a directory is noted: the root's own notes are not the share's."""
    return path or "/"
