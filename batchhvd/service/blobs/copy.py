"""Copies of blobs within this service."""

from __future__ import annotations

import os

from batchhvd.service.blobs.blob import content as content_headers
from batchhvd.service.blobs.blob import enter
from batchhvd.service.blobs.call import BlobCall
from batchhvd.service.storage.copying import check_source_conditions, receipt
from batchhvd.service.storage.disk import content, tree
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.shown_headers import written


def copy(call: BlobCall) -> Response:
    """Copies a blob of this service; the copy is done when the answer comes."""
    request, source = call.request, call.request.origin()
    with tree.file(call.disk.share(source), source.names) as (fd, place), call.disk.stage() as staged:
        facts = call.disk.facts(source, place.path, os.fstat(fd))
        check_source_conditions(request, os.fstat(fd), facts)
        content.copy(fd, staged.fd)
        told = receipt(request, staged.fd)
        kept = {"metadata": request.metadata() or facts.get("metadata", {})}
        new = Facts(metadata=kept["metadata"], content=content_headers(request) or facts.get("content", {}), copy=told)
        about = enter(call, staged, new)
    call.blocks.forget(request.target)
    return Response(202, {**written(about, new), **{name: told[name] for name in ("x-ms-copy-id", "x-ms-copy-status")}})


def abort(call: BlobCall) -> Response:
    """Refuses to stop a copy: it has ended already."""
    raise refusal("NoPendingCopyOperation")
