"""Operations that copy: whole files, and ranges, from a URL of this service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from batchhvd.service.files.operations.file import enter
from batchhvd.service.files.operations.properties import content as content_headers
from batchhvd.service.files.operations.range import check_may_write
from batchhvd.service.files.operations.smb import note_smb, written_at
from batchhvd.service.files.protocol.permission import DEFAULT_KEY
from batchhvd.service.storage.condition import check_write
from batchhvd.service.storage.copying import check_signed, check_source_conditions, check_source_sums, receipt
from batchhvd.service.storage.disk import content, tree
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.byte_range import RANGE_BYTES, asked, bounds
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.shown_headers import written


def copy(disk: Disk, request: Request) -> Response:
    """Copies a file of this service; the copy is done when the answer comes."""
    share, names = disk.share(request.target), request.target.names
    with _source(disk, request.origin()) as (fd, facts), tree.spot(share, names) as place, disk.stage() as staged:
        content.copy(fd, staged.fd)
        content.stamp(staged.fd, _time(request, fd))
        told = receipt(request, staged.fd)
        new = _copied(disk, request, facts, told)
        ignore = request.header("x-ms-file-copy-ignore-readonly").lower() == "true"
        headers = enter(disk, request, place, staged, new, ignore_read_only=ignore)
    return Response(202, {**headers, **{name: told[name] for name in ("x-ms-copy-id", "x-ms-copy-status")}})


def _time(request: Request, fd: int) -> int | None:
    """Returns the time of last write that is the source's, if the request wants that one."""
    asked_for = request.header("x-ms-file-last-write-time").lower()
    return os.fstat(fd).st_mtime_ns if asked_for == "source" else None


def _copied(disk: Disk, request: Request, source: Facts, receipt: dict[str, str]) -> Facts:
    """Returns what is noted of the copy: what the request says; the source's own facts stand for the rest."""
    kept: Facts = {"metadata": source.get("metadata", {}), "content": source.get("content", {}), "copy": receipt}
    kept["created"], kept["attributes"] = source.get("created"), source.get("attributes", "")
    if _takes_permission(request) and source.get("permission"):
        kept["permission"] = source["permission"]
    note_smb(disk, request, kept)
    if request.header("x-ms-file-copy-set-archive").lower() == "true":
        words = [word for word in kept.get("attributes", "").split("|") if word and word != "Archive"]
        kept["attributes"] = "|".join([*words, "Archive"])
    kept["metadata"] = request.metadata() or kept["metadata"]
    kept["content"] = content_headers(request) or kept["content"]
    _bring_permission(disk, request, kept)
    return kept


def _takes_permission(request: Request) -> bool:
    return request.header("x-ms-file-permission-copy-mode").lower() != "override"


def _bring_permission(disk: Disk, request: Request, facts: Facts) -> None:
    """Keeps the source's permission in the share of the copy too."""
    key, origin = facts.get("permission", ""), request.origin()
    if key and key != DEFAULT_KEY:
        text = disk.sidecar.permission(disk.key(Target(origin.account, origin.share)), key)
        if text is not None:
            disk.sidecar.keep_permission(disk.key(request.target), key, text)


def put_from_url(disk: Disk, request: Request) -> Response:
    """Writes a range with the bytes of a range of another file of this service."""
    into, part = asked(request), _source_range(request)
    if into is None or into[0] is None or into[1] is None or into[1] - into[0] != part[1] - part[0]:
        raise refusal("InvalidHeaderValue", "Both ranges must name first and last byte and have the same length.")
    if part[1] - part[0] >= RANGE_BYTES:
        raise refusal("RequestBodyTooLarge")
    if request.size:
        raise refusal("InvalidHeaderValue", "The content comes from x-ms-copy-source; the body must be empty.")
    check_signed(request)
    body = _source_bytes(disk, request, part)
    with tree.file(disk.share(request.target), request.target.names, os.O_RDWR) as (fd, place):
        about = os.fstat(fd)
        check_write(request, about)
        check_may_write(disk, request, place.path, about)
        if into[1] >= about.st_size:
            raise refusal("InvalidRange", "Set the file's size first.")
        disk.check_quota(request.target, len(body))
        content.write(fd, [body], into[0])
        content.stamp(fd, written_at(request, about.st_mtime_ns))
        disk.touch(request.target, about, into[0], into[1])
        return Response(201, {**written(os.fstat(fd)), "x-ms-request-server-encrypted": "true"})


def abort(disk: Disk, request: Request) -> Response:
    """Refuses to stop a copy: it has ended already."""
    raise refusal("NoPendingCopyOperation")


def _source_bytes(disk: Disk, request: Request, part: tuple[int, int]) -> bytes:
    with _source(disk, request.origin()) as (origin, facts):
        about = os.fstat(origin)
        check_source_conditions(request, about, facts)
        if bounds(part, about.st_size) != part:
            raise refusal("InvalidRange", "It lies outside the source.")
        body = os.pread(origin, part[1] - part[0] + 1, part[0])
    check_source_sums(request, lambda: [body])
    return body


@contextmanager
def _source(disk: Disk, source: Target) -> Iterator[tuple[int, Facts]]:
    with tree.file(disk.share(source), source.names) as (fd, place):
        yield fd, disk.facts(source, place.path, os.fstat(fd))


def _source_range(request: Request) -> tuple[int, int]:
    text = request.required("x-ms-source-range")
    first, dash, last = text.removeprefix("bytes=").partition("-")
    if not (text.startswith("bytes=") and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise refusal("InvalidHeaderValue", "x-ms-source-range must be written bytes=first-last.")
    return int(first), int(last)
