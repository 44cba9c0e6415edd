"""Operations on ranges of a file: written, cleared, listed."""

from __future__ import annotations

import os

from batchhvd.service.files.disk import content, tree
from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.operations.condition import check_write
from batchhvd.service.files.operations.properties import written
from batchhvd.service.files.protocol import xml
from batchhvd.service.files.protocol.byte_range import RANGE_BYTES, asked, bounds, exact
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request, TakesLong
from batchhvd.service.files.protocol.response import Response, xml_response


def put(disk: Disk, request: Request) -> Response:
    """Writes or clears a range inside a file; the whole body, its length and MD5 checked, or nothing."""
    first, last = exact(request)
    clear = request.required("x-ms-write").lower() == "clear"
    if clear and request.hurried:
        raise TakesLong
    if not clear:
        _check_body(request, last - first + 1)
    with tree.file(disk.share(request.target), request.target.names, os.O_RDWR) as (fd, _):
        about = os.fstat(fd)
        check_write(request, about)
        if last >= about.st_size:
            raise refusal("InvalidRange", "Set the file's size first.")
        if clear:
            content.punch(fd, first, last - first + 1)
        else:
            content.write(fd, request.body, first)
        content.stamp(fd, about.st_mtime_ns if _keeps_time(request) else None)
        about = os.fstat(fd)
    md5 = {"content-md5": request.header("content-md5")} if request.header("content-md5") else {}
    return Response(201, {**written(about), **md5})


def list_ranges(disk: Disk, request: Request) -> Response:
    """Lists the ranges that hold data, of the whole file or of one range; holes are left out."""
    part = asked(request) or (0, None)
    with tree.file(disk.share(request.target), request.target.names) as (fd, _):
        about = os.fstat(fd)
        span = bounds(part, about.st_size)
        found = list(content.data(fd, *span)) if span else []
    return xml_response(xml.ranges(found), {**written(about), "x-ms-content-length": str(about.st_size)})


def _keeps_time(request: Request) -> bool:
    return request.header("x-ms-file-last-write-time").lower() == "preserve"


def _check_body(request: Request, length: int) -> None:
    if request.header("x-ms-write").lower() != "update":
        raise refusal("InvalidHeaderValue", "x-ms-write must be 'update' or 'clear'.")
    if length > RANGE_BYTES:
        raise refusal("RequestBodyTooLarge")
    if length != request.size:
        raise refusal("InvalidHeaderValue", "The range and the body must have the same length.")
    request.check_md5()
