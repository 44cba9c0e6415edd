"""Answers that carry the content of a file, whole or a range of it."""

from __future__ import annotations

import os

from batchhvd.service.storage.condition import check_conditions
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tag import etag
from batchhvd.service.storage.protocol import crc64
from batchhvd.service.storage.protocol.byte_range import RANGE_BYTES, asked, bounds
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, md5
from batchhvd.service.storage.protocol.response import Response, Stretch, error_response
from batchhvd.service.storage.shown_headers import written

_IN_MEMORY = 1 << 20  # answers up to this size are read before they begin
_CHECKSUMS = ("x-ms-range-get-content-md5", "x-ms-range-get-content-crc64")


def content_response(
    request: Request,
    fd: int,
    about: os.stat_result,
    facts: Facts,
    headers: dict[str, str],
    whole: str = "x-ms-content-md5",
) -> Response:
    """Returns an open file's content or the range of it that a request asks for.

    Args:
        request: the request.
        fd: the open file; the sender closes it if the body is a ``Stretch``.
        about: what the system knows of it.
        facts: what is noted of it.
        headers: the headers that describe it.
        whole: the header that carries the MD5 of the whole content if only a range is sent.
    """
    if not check_conditions(request, about, facts):
        return Response(304, {**written(about, facts), "x-ms-error-code": "ConditionNotMet"})
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
        headers[whole] = headers.pop("content-md5")  # it is the whole file's
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
