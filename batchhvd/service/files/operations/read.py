"""Operations that read a file: its content, its properties, its metadata."""

from __future__ import annotations

import os

from batchhvd.service.files.operations.file import names_of
from batchhvd.service.files.operations.lease import check_lease
from batchhvd.service.files.operations.properties import shown
from batchhvd.service.storage.condition import check_conditions
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response, Stretch
from batchhvd.service.storage.reading import content_response
from batchhvd.service.storage.shown_headers import opened, overrides, written


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
        answer = content_response(request, fd, about, facts, headers)
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
