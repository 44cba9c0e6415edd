"""Operations on ranges of a file: written, cleared, listed, compared with a snapshot's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice

from attrs import evolve

from batchhvd.service.files.operations.lease import check_lease
from batchhvd.service.files.operations.smb import is_read_only, written_at
from batchhvd.service.storage.condition import check_conditions, check_write
from batchhvd.service.storage.disk import content, sectors, tree
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts, Rows, stored
from batchhvd.service.storage.disk.stretches import Stretch
from batchhvd.service.storage.disk.tag import file_id
from batchhvd.service.storage.protocol import xml
from batchhvd.service.storage.protocol.byte_range import RANGE_BYTES, asked, bounds, exact
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, TakesLong, Target
from batchhvd.service.storage.protocol.response import Response, xml_response
from batchhvd.service.storage.shown_headers import written

Found = tuple[str, int, int]


def put(disk: Disk, request: Request) -> Response:
    """Writes or clears a range inside a file; the whole body, its length and MD5 checked, or nothing."""
    first, last = exact(request)
    clear = request.required("x-ms-write").lower() == "clear"
    if clear and request.hurried:
        raise TakesLong
    if not clear:
        _check_body(request, last - first + 1)
    with tree.file(disk.share(request.target), request.target.names, os.O_RDWR) as (fd, place):
        about = os.fstat(fd)
        check_write(request, about)
        check_may_write(disk, request, place.path, about)
        if last >= about.st_size:
            raise refusal("InvalidRange", "Set the file's size first.")
        if clear:
            content.punch(fd, first, last - first + 1)
        else:
            disk.check_quota(request.target, last - first + 1)
            content.write(fd, request.body, first)
        content.stamp(fd, written_at(request, about.st_mtime_ns))
        about = os.fstat(fd)
        disk.touch(request.target, about, first, last)  # after it: a snapshot may have been begun meanwhile
    sums = {name: request.header(name) for name in ("content-md5", "x-ms-content-crc64") if request.header(name)}
    return Response(201, {**written(about), "x-ms-request-server-encrypted": "true", **sums})


def check_may_write(disk: Disk, request: Request, path: str, about: os.stat_result) -> None:
    """Refuses to write a file that has a lease with another id or the attribute ReadOnly."""
    facts = disk.facts(request.target, path, about)
    check_lease(request, facts, disk.now(), needed=True)
    if is_read_only(facts):
        raise refusal("ReadOnlyAttribute")


def list_ranges(disk: Disk, request: Request) -> Response:
    """Lists the ranges that hold data, of the whole file or of one range; holes are left out.

    With ``prevsharesnapshot`` it lists what differs from the file in that snapshot.
    """
    part = asked(request) or (0, None)
    with tree.file(disk.share(request.target), request.target.names) as (fd, place), ExitStack() as others:
        about = os.fstat(fd)
        facts = disk.facts(request.target, place.path, about)
        check_lease(request, facts, disk.now(), needed=False)
        if not check_conditions(request, about, facts):
            return Response(304, written(about, facts))
        span = bounds(part, about.st_size)
        found = _found(disk, request, fd, span, others) if span else iter(())
        page, marker = _page(request, found)
    headers = {**written(about, facts), "x-ms-content-length": str(about.st_size)}
    return xml_response(xml.ranges(page, marker), headers)


def _found(disk: Disk, request: Request, fd: int, span: tuple[int, int], others: ExitStack) -> Iterator[Found]:
    first, last = span
    if not request.query.get("prevsharesnapshot"):
        return (("Range", start, end) for start, end in sectors.filled(fd, first, last))
    before = _earlier(disk, request, fd, others)
    if before is not None and os.path.sameopenfile(fd, before):
        return iter(())  # two snapshots share one copy of a file that has not changed
    return _within(
        sectors.differing(fd, before, last, _touched(disk, request, fd) if before is not None else ()), first
    )


def _touched(disk: Disk, request: Request, fd: int) -> list[Stretch]:
    """Returns what requests have written or cleared since the snapshot, also if the bytes are the same again."""
    about, target = os.fstat(fd), request.target
    number = file_id(about, disk.facts(target, target.path, about))
    until = target.snapshot or "\U0010ffff"
    return disk.sidecar.touched(
        disk.key(Target(target.account, target.share)), number, request.query["prevsharesnapshot"], until
    )


def _within(found: Iterable[Found], first: int) -> Iterator[Found]:
    return ((kind, max(start, first), end) for kind, start, end in found if end >= first)


def _earlier(disk: Disk, request: Request, fd: int, others: ExitStack) -> int | None:
    """Opens the file as it was in the snapshot to compare with; None if the snapshot did not have it.

    A file that had another path then is followed only if the request wants that.
    """
    target = evolve(request.target, snapshot=request.query["prevsharesnapshot"])
    if not disk.share(target).is_dir():
        raise refusal("ShareSnapshotNotFound")
    path = _path_then(disk, target, os.fstat(fd), disk.facts(request.target, request.target.path, os.fstat(fd)))
    if path is None:
        return None
    if path != request.target.path and request.header("x-ms-file-support-rename").lower() != "true":
        raise refusal(
            "ShareSnapshotOperationNotSupported",
            "The file had another path then; send x-ms-file-support-rename: true to compare with it.",
        )
    return others.enter_context(tree.file(disk.share(target), path.split("/")))[0]


def _path_then(disk: Disk, target: Target, about: os.stat_result, facts: Facts) -> str | None:
    """Returns the path that a file had in a snapshot, by its id."""
    wanted = file_id(about, facts)
    rows = disk.sidecar.below(disk.key(target))
    if _id_in(rows, stored(target.path)) == wanted:
        return target.path
    return next((path for path in rows if path and _id_in(rows, path) == wanted), None)


def _id_in(rows: Rows, path: str) -> int | None:
    frozen = rows[path][1].get("frozen") if path in rows else None
    return frozen["id"] if frozen else None


def _page(request: Request, found: Iterator[Found]) -> tuple[list[Found], str]:
    """Returns one page of ranges, all of them if no page size was asked for, and where the next page begins."""
    marker, most = request.query.get("marker", ""), request.query.get("maxresults", "")
    if marker and not (marker.isascii() and marker.isdecimal() and len(marker) < 20):
        raise refusal("InvalidQueryParameterValue", "The marker is not one of this listing.")
    if marker:
        found = (each for each in found if each[1] >= int(marker))
    if not most:
        return list(found), ""
    page = list(islice(found, request.count("maxresults", 1, 1 << 31)))
    following = next(found, None)
    return page, str(following[1]) if following else ""


def _check_body(request: Request, length: int) -> None:
    if length > RANGE_BYTES:
        raise refusal("RequestBodyTooLarge")
    if length != request.size:
        raise refusal("InvalidHeaderValue", "The range and the body must have the same length.")
