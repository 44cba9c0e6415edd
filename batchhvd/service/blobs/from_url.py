"""Blobs and blocks whose content is that of another blob of this service, named by a link that permits reading it."""

from __future__ import annotations

import os
import re

from batchhvd.service.blobs.blob import content as content_headers
from batchhvd.service.blobs.blob import enter
from batchhvd.service.blobs.block_list import block_id
from batchhvd.service.blobs.call import BlobCall, Upload
from batchhvd.service.storage.copying import check_signed, check_source_conditions, check_source_sums
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.content import write
from batchhvd.service.storage.disk.disk import Staged
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.byte_range import bounds
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, md5
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.shown_headers import written
from batchhvd.service.storage.whole import share_facts

_PIECE = 4 << 20  # bytes copied at a time
_RANGE = re.compile(r"bytes=([0-9]{1,19})-([0-9]{0,19})")


def put_blob(call: BlobCall) -> Response:
    """Creates a blob with the content of another one, and unless the request says otherwise with its properties."""
    request = call.request
    with call.disk.stage() as staged:
        source, sum_ = _fetch(call, staged)
        own, kept = content_headers(request), source.get("content", {})
        if request.header("x-ms-copy-source-blob-properties").lower() == "false":
            kept = {}
        facts = Facts(metadata=request.metadata(), content={**kept, **own, "content-md5": sum_})
        about = enter(call, staged, facts)
    call.blocks.forget(request.target)
    return Response(201, {**written(about, facts), "content-md5": sum_, "x-ms-request-server-encrypted": "true"})


def put_block(call: BlobCall) -> Response:
    """Keeps a blob, or a range of it, as a block until a list makes a blob of it."""
    share_facts(call.disk, call.request.target)
    block = block_id(call.request.query.get("blockid", ""))
    with call.disk.stage() as staged:
        _, sum_ = _fetch(call, staged)
        call.blocks.put(call.request.target, block, staged)
    return Response(201, {"content-md5": sum_, "x-ms-request-server-encrypted": "true"})


def _fetch(call: BlobCall, staged: Staged) -> tuple[Facts, str]:
    """Copies what the request names, and returns what is known of the source, and the MD5 of what was copied."""
    request = call.request
    if request.size:
        raise refusal("InvalidHeaderValue", "The content comes from x-ms-copy-source; the body must be empty.")
    check_signed(request)
    source = request.origin()
    with tree.file(call.disk.share(source), source.names) as (fd, place):
        about = os.fstat(fd)
        facts = call.disk.facts(source, place.path, about)
        check_source_conditions(request, about, facts)
        first, size = _part(request, about.st_size)
        for done in range(0, size, _PIECE):
            write(staged.fd, [os.pread(fd, min(_PIECE, size - done), first + done)], done)
    copied = Upload(staged, "")
    check_source_sums(request, copied.pieces)
    return facts, md5(copied.pieces())


def _part(request: Request, size: int) -> tuple[int, int]:
    """Returns the first byte and the size of what is copied: of the whole source, or of the range that is named."""
    text = request.header("x-ms-source-range")
    if not text:
        return 0, size
    found = _RANGE.fullmatch(text)
    if not found:
        raise refusal("InvalidHeaderValue", "x-ms-source-range must be written bytes=first-last.")
    part = bounds((int(found[1]), int(found[2]) if found[2] else None), size)
    if part is None or (found[2] and part[1] != int(found[2])):
        raise refusal("InvalidRange", "It lies outside the source.")
    return part[0], part[1] - part[0] + 1
