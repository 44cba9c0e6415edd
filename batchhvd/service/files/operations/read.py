"""Operations that read a file: its content, its properties, its metadata."""

from __future__ import annotations

import os

from batchhvd.service.files.operations.file import names_of
from batchhvd.service.files.operations.lease import check_lease
from batchhvd.service.files.operations.properties import opened, overrides, shown, written
from batchhvd.service.storage.condition import check_conditions
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tag import etag
from batchhvd.service.storage.protocol import crc64
from batchhvd.service.storage.protocol.byte_range import RANGE_BYTES, asked, bounds
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, md5
from batchhvd.service.storage.protocol.response import Response, Stretch, error_response

_IN_MEMORY = 1 << 20  # answers up to this size are read before they begin
_CHECKSUMS = ("x-ms-range-get-content-md5", "x-ms-range-get-content-crc64")


def read(disk: Disk, request: Request) -> Response:
    """Sends a file or a range of it."""
    with tree.spot(disk.share(request.target), names_of(request), follow=True) as place:
        fd, parent = tree.open_file(place), place.parent_id()
    handed_over = False
    try:
        about = os.fstat(fd)
        facts = disk.facts(request.target, place.path, about)
        check_lease(request, facts, disk.now(), needed=False)
        headers = opened(shown(request, about, facts, parent, disk.now()), request.query)
        answer = _content(request, fd, about, facts, headers)
        handed_over = isinstance(answer.body, Stretch)
        return answer
    finally:
        if not handed_over:
            os.close(fd)


def properties(disk: Disk, request: Request) -> Response:
    """Returns a file's size, times, content headers and metadata."""
    with tree.file(disk.share(request.target), names_of(request)) as (fd, place):
        about = os.fstat(fd)
        facts = disk.facts(request.target, place.path, about)
        headers = {**shown(request, about, facts, place.parent_id(), disk.now()), **overrides(request.query)}
    check_lease(request, facts, disk.now(), needed=False)
    if not check_conditions(request, about, facts):
        return Response(304, written(about, facts))
    return Response(200, {**headers, "content-length": str(about.st_size), "accept-ranges": "bytes"})


def read_metadata(disk: Disk, request: Request) -> Response:
    """Returns only a file's metadata."""
    answer = properties(disk, request)
    told = {name: value for name, value in answer.headers.items() if name.startswith("x-ms-meta-")}
    return Response(200, {**told, "etag": answer.headers["etag"], "last-modified": answer.headers["last-modified"]})


def _content(request: Request, fd: int, about: os.stat_result, facts: Facts, headers: dict[str, str]) -> Response:
    if not check_conditions(request, about, facts):
        return Response(304, written(about, facts))
    part = asked(request)
    headers["accept-ranges"] = "bytes"
    if part is None:
        if _wants_checksum(request):
            raise refusal("InvalidHeaderValue", f"{' and '.join(_CHECKSUMS)} need a range of up to 4 MiB.")
        return _body(fd, 200, 0, about.st_size, headers, request)
    span = bounds(part, about.st_size)
    if span is None:
        return error_response(
            refusal("InvalidRange"), {"content-range": f"bytes */{about.st_size}", "etag": etag(about, facts)}
        )
    first, last = span
    if "content-md5" in headers:
        headers["x-ms-content-md5"] = headers.pop("content-md5")  # it is the whole file's
    headers["content-range"] = f"bytes {first}-{last}/{about.st_size}"
    return _body(fd, 206, first, last - first + 1, headers, request)


def _wants_checksum(request: Request) -> bool:
    return any(request.header(name).lower() == "true" for name in _CHECKSUMS)


def _body(fd: int, status: int, start: int, length: int, headers: dict[str, str], request: Request) -> Response:
    checked = _wants_checksum(request)
    if checked and length > RANGE_BYTES:
        raise refusal("InvalidHeaderValue", f"{' and '.join(_CHECKSUMS)} work only with ranges of up to 4 MiB.")
    if length > _IN_MEMORY and not checked:
        headers["content-length"] = str(length)
        return Response(status, headers, Stretch(fd, start, length))
    body = os.pread(fd, length, start)
    if len(body) < length:
        raise refusal("ConditionNotMet", "The file became shorter while it was read; send the request again.")
    if request.header(_CHECKSUMS[0]).lower() == "true":
        headers["content-md5"] = md5([body])
    if request.header(_CHECKSUMS[1]).lower() == "true":
        headers["x-ms-content-crc64"] = crc64.encoded([body])
    return Response(status, headers, body)
