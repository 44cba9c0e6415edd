"""Operations on whole files."""

from __future__ import annotations

import base64
import hashlib
import os
import stat

from batchhvd.service.files.disk import tree
from batchhvd.service.files.disk.content import stamp, write
from batchhvd.service.files.disk.disk import Disk, Staged
from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.disk.tree import Spot
from batchhvd.service.files.operations.condition import check_conditions, check_write
from batchhvd.service.files.operations.properties import (
    content,
    described,
    etag,
    opened,
    overrides,
    shown,
    time_in,
    written,
)
from batchhvd.service.files.protocol.byte_range import RANGE_BYTES, asked, bounds
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request, TakesLong
from batchhvd.service.files.protocol.response import Response, Stretch, error_response

_MOST = 4 << 40  # bytes in one file, as in Azure
_SOON_FREED = 1 << 20  # bytes of a replaced file that the system frees in a moment
_IN_MEMORY = 1 << 20  # answers up to this size are read before they begin


def create(disk: Disk, request: Request) -> Response:
    """Creates a file of a given size, all zeros or with the body at its front, in place of an existing one.

    The file enters the share by a rename at its full size, so no reader ever sees half of it. Clients that have the old
    file of that name open go on reading and writing the old one.
    """
    if request.required("x-ms-type").lower() != "file":
        raise refusal("InvalidHeaderValue", "x-ms-type must be 'file'.")
    size = request.number("x-ms-content-length", most=_MOST)
    if request.size > size:
        raise refusal("InvalidHeaderValue", "The body is longer than x-ms-content-length.")
    request.check_md5()
    facts = noted(request)
    with tree.spot(disk.share(request.target), _names(request)) as place, disk.stage() as staged:
        os.ftruncate(staged.fd, size)
        write(staged.fd, request.body, 0)
        about = enter(disk, request, place, staged, facts)
    return Response(201, described(about, facts))


def enter(disk: Disk, request: Request, place: Spot, staged: Staged, facts: Facts) -> os.stat_result:
    """Puts a staged file into the share with its facts, and returns what the system knows of it."""
    there = existing(place)
    check_write(request, there)
    if there and stat.S_ISDIR(there.st_mode):
        raise refusal("ResourceTypeMismatch", "There is a directory of this name.")
    if there and request.hurried and there.st_size > _SOON_FREED:
        raise TakesLong
    if there and not request.may_replace:
        raise refusal("AuthorizationPermissionMismatch", "It allows only new files, and this one exists.")
    disk.check_room(request.target, os.fstat(staged.fd).st_size - (there.st_size if there else 0))
    changed = time_in(request, "x-ms-file-last-write-time")
    if changed is not None:
        os.utime(staged.fd, ns=(changed, changed))
    disk.note(request.target, place.path, os.fstat(staged.fd), facts)  # before, so that no reader sees it without
    return staged.enter(place)


def read(disk: Disk, request: Request) -> Response:
    """Sends a file or a range of it."""
    with tree.spot(disk.share(request.target), _names(request), follow=True) as place:
        fd = tree.open_file(place)
    handed_over = False
    try:
        about = os.fstat(fd)
        headers = opened(shown(about, disk.facts(request.target, place.path, about)), request.query)
        answer = _content(request, fd, about, headers)
        handed_over = isinstance(answer.body, Stretch)
        return answer
    finally:
        if not handed_over:
            os.close(fd)


def properties(disk: Disk, request: Request) -> Response:
    """Returns a file's size, times, content headers and metadata."""
    with tree.file(disk.share(request.target), _names(request)) as (fd, place):
        about = os.fstat(fd)
        facts = disk.facts(request.target, place.path, about)
    headers = {**shown(about, facts), **overrides(request.query)}
    if not check_conditions(request, about):
        return Response(304, written(about))
    return Response(200, {**headers, "content-length": str(about.st_size), "accept-ranges": "bytes"})


def read_metadata(disk: Disk, request: Request) -> Response:
    """Returns only a file's metadata."""
    answer = properties(disk, request)
    told = {name: value for name, value in answer.headers.items() if name.startswith("x-ms-meta-")}
    return Response(200, {**told, "etag": answer.headers["etag"], "last-modified": answer.headers["last-modified"]})


def set_properties(disk: Disk, request: Request) -> Response:
    """Sets a file's size, its content headers, its times.

    Content headers are replaced as a whole, but left alone if the request only sets the size.
    """
    size = request.number("x-ms-content-length", most=_MOST) if "x-ms-content-length" in request.headers else None
    new, made = content(request), time_in(request, "x-ms-file-creation-time")
    changed = time_in(request, "x-ms-file-last-write-time")
    with tree.file(disk.share(request.target), _names(request), os.O_RDWR) as (fd, place):
        about = os.fstat(fd)
        check_write(request, about)
        disk.check_room(request.target, (size or 0) - about.st_size)
        facts = disk.facts(request.target, place.path, about)
        facts["created"] = made if made is not None else facts.get("created")
        if new or size is None:
            facts["content"] = new
        disk.note(request.target, place.path, about, facts)
        if size is not None and size != about.st_size:
            os.ftruncate(fd, size)
        stamp(fd, changed)
        about = os.fstat(fd)
    return Response(200, described(about, facts))


def set_metadata(disk: Disk, request: Request) -> Response:
    """Replaces a file's metadata."""
    with tree.file(disk.share(request.target), _names(request)) as (fd, place):
        about = os.fstat(fd)
        check_write(request, about)
        facts = disk.facts(request.target, place.path, about)
        disk.note(request.target, place.path, about, {**facts, "metadata": request.metadata()})
        stamp(fd, about.st_mtime_ns)
        about = os.fstat(fd)
    return Response(200, written(about))


def delete(disk: Disk, request: Request) -> Response:
    """Deletes a file, or a link itself."""
    with tree.spot(disk.share(request.target), _names(request)) as place:
        about = place.stat()
        check_write(request, about)
        if stat.S_ISDIR(about.st_mode):
            raise refusal("ResourceTypeMismatch", "It is a directory.")
        os.unlink(place.name, dir_fd=place.fd)
        disk.forget(request.target, place.path)
    return Response(202)


def noted(request: Request) -> Facts:
    """Returns what a request that creates a file says about it beyond what the disk holds."""
    made = time_in(request, "x-ms-file-creation-time")
    return {"metadata": request.metadata(), "content": content(request), "created": made}


def existing(place: Spot) -> os.stat_result | None:
    """Returns what the system knows of an entry, or None if it does not exist."""
    try:
        return place.stat()
    except FileNotFoundError:
        return None


def _names(request: Request) -> tuple[str, ...]:
    if not request.target.names:
        raise refusal("InvalidResourceName", "The path names the share's root, not a file.")
    return request.target.names


def _content(request: Request, fd: int, about: os.stat_result, headers: dict[str, str]) -> Response:
    if not check_conditions(request, about):
        return Response(304, written(about))
    part = asked(request)
    headers["accept-ranges"] = "bytes"
    if part is None:
        return _body(fd, 200, 0, about.st_size, headers, request)
    span = bounds(part, about.st_size)
    if span is None:
        return error_response(
            refusal("InvalidRange"), {"content-range": f"bytes */{about.st_size}", "etag": etag(about)}
        )
    first, last = span
    if "content-md5" in headers:
        headers["x-ms-content-md5"] = headers.pop("content-md5")  # it is the whole file's
    headers["content-range"] = f"bytes {first}-{last}/{about.st_size}"
    return _body(fd, 206, first, last - first + 1, headers, request)


def _body(fd: int, status: int, start: int, length: int, headers: dict[str, str], request: Request) -> Response:
    checked = request.header("x-ms-range-get-content-md5").lower() == "true" and status == 206
    if checked and length > RANGE_BYTES:
        raise refusal("InvalidHeaderValue", "x-ms-range-get-content-md5 works only with ranges of up to 4 MiB.")
    if length > _IN_MEMORY and not checked:
        headers["content-length"] = str(length)
        return Response(status, headers, Stretch(fd, start, length))
    body = os.pread(fd, length, start)
    if len(body) < length:
        raise refusal("ConditionNotMet", "The file became shorter while it was read; send the request again.")
    if checked:
        headers["content-md5"] = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    return Response(status, headers, body)
