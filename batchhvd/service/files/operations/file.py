"""Operations on whole files."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext

from batchhvd.service.files.operations.lease import check_lease
from batchhvd.service.files.operations.properties import content, described
from batchhvd.service.files.operations.smb import is_read_only, note_smb, said_change, written_at
from batchhvd.service.storage.condition import check_write
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.content import stamp, touch, write
from batchhvd.service.storage.disk.disk import Disk, Staged
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tree import Spot
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, TakesLong
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.shown_headers import written

_MOST = 4 << 40  # bytes in one file, as in Azure
_SOON_FREED = 1 << 20  # bytes of a replaced file that the system frees in a moment


def create(disk: Disk, request: Request) -> Response:
    """Creates a file of a given size, all zeros or with the body at its front, in place of an existing one.

    The file enters the share by a rename at its full size, so no reader ever sees half of it. Clients that have the old
    file of that name open go on reading and writing the old one.
    """
    request.required("x-ms-type")
    size = request.number("x-ms-content-length", most=_MOST)
    if request.size > size:
        raise refusal("InvalidHeaderValue", "The body is longer than x-ms-content-length.")
    facts = Facts(metadata=request.metadata(), content=content(request))
    note_smb(disk, request, facts)
    with tree.spot(disk.share(request.target), names_of(request)) as place, disk.stage() as staged:
        os.ftruncate(staged.fd, size)
        write(staged.fd, request.body, 0)
        return Response(201, enter(disk, request, place, staged, facts))


def enter(
    disk: Disk, request: Request, place: Spot, staged: Staged, facts: Facts, *, ignore_read_only: bool = False
) -> dict[str, str]:
    """Puts a staged file into the share with its facts, and returns the headers that describe it."""
    there = existing(place)
    check_write(request, there)
    if there and stat.S_ISDIR(there.st_mode):
        raise refusal("ResourceTypeMismatch", "There is a directory of this name.")
    if there and request.hurried and there.st_size > _SOON_FREED:
        raise TakesLong
    if there and not request.may_replace:
        raise refusal("AuthorizationPermissionMismatch", "It allows only new files, and this one exists.")
    disk.check_room(request.target, os.fstat(staged.fd).st_size - (there.st_size if there else 0))
    if request.header("x-ms-file-last-write-time"):
        stamp(staged.fd, written_at(request, os.fstat(staged.fd).st_mtime_ns))
    with disk.noting(hurried=request.hurried) if there else nullcontext():
        facts["lease"] = _replaced(disk, request, place, there, ignore_read_only).get("lease")
        disk.note(request.target, place.path, os.fstat(staged.fd), facts)  # before, so that no reader sees it without
        about = staged.enter(place)
        facts["changed"] = said_change(request, about)
        if facts["changed"]:
            disk.note(request.target, place.path, about, facts)
    return described(about, facts, place.parent_id())


def _replaced(disk: Disk, request: Request, place: Spot, there: os.stat_result | None, ignore_read_only: bool) -> Facts:
    """Returns what is noted of the file that is replaced; refuses the request if that may not be."""
    facts = disk.facts(request.target, place.path, there) if there else Facts()
    check_lease(request, facts, disk.now(), needed=True)
    if is_read_only(facts) and not ignore_read_only:
        raise refusal("ReadOnlyAttribute")
    return facts


def set_properties(disk: Disk, request: Request) -> Response:
    """Sets a file's size, its content headers, its times, attributes and permission.

    Content headers are replaced as a whole, but left alone if the request only sets the size.
    """
    size = request.number("x-ms-content-length", most=_MOST) if "x-ms-content-length" in request.headers else None
    new = content(request)
    with tree.file(disk.share(request.target), names_of(request), os.O_RDWR) as (fd, place), disk.noting():
        about = os.fstat(fd)
        facts = disk.facts(request.target, place.path, about)
        check_write(request, about)
        check_lease(request, facts, disk.now(), needed=True)
        if size is not None and size != about.st_size and is_read_only(facts):
            raise refusal("ReadOnlyAttribute")
        disk.check_room(request.target, (size or 0) - about.st_size)
        note_smb(disk, request, facts)
        if new or size is None:
            facts["content"] = new
        changes_size = size is not None and size != about.st_size
        moment = written_at(request, about.st_mtime_ns, "preserve")
        if size is not None and changes_size:
            os.ftruncate(fd, size)
        about = touch(fd, about, moment)
        facts["changed"] = said_change(request, about)
        disk.note(request.target, place.path, about, facts)
        return Response(200, described(about, facts, place.parent_id()))


def set_metadata(disk: Disk, request: Request) -> Response:
    """Replaces a file's metadata."""
    said = request.metadata()
    with tree.file(disk.share(request.target), names_of(request)) as (fd, place), disk.noting():
        about = os.fstat(fd)
        facts = disk.facts(request.target, place.path, about)
        check_write(request, about)
        check_lease(request, facts, disk.now(), needed=True)
        disk.note(request.target, place.path, about, {**facts, "metadata": said})
        return Response(200, written(touch(fd, about, about.st_mtime_ns)))


def delete(disk: Disk, request: Request) -> Response:
    """Deletes a file, or a link itself."""
    with tree.spot(disk.share(request.target), names_of(request)) as place:
        about = place.stat()
        facts = disk.facts(request.target, place.path, about)
        check_write(request, about)
        if stat.S_ISDIR(about.st_mode):
            raise refusal("ResourceTypeMismatch", "It is a directory.")
        check_lease(request, facts, disk.now(), needed=True)
        if is_read_only(facts):
            raise refusal("ReadOnlyAttribute")
        os.unlink(place.name, dir_fd=place.fd)
        disk.forget(request.target, place.path)
    return Response(202)


def existing(place: Spot) -> os.stat_result | None:
    """Returns what the system knows of an entry, or None if it does not exist."""
    try:
        return place.stat()
    except FileNotFoundError:
        return None


def names_of(request: Request) -> tuple[str, ...]:
    """Returns the path of a file; refuses the root."""
    if not request.target.names:
        raise refusal("InvalidResourceName", "The path names the share's root, not a file.")
    return request.target.names
