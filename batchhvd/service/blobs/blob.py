"""Operations on whole blobs: put, read, describe, delete."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

from batchhvd.errors import ServiceError
from batchhvd.service.blobs.call import BlobCall
from batchhvd.service.storage.condition import check_conditions
from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.content import touch
from batchhvd.service.storage.disk.disk import Staged
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.tag import created
from batchhvd.service.storage.disk.tree import Spot
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response, Stretch
from batchhvd.service.storage.reading import content_response
from batchhvd.service.storage.shown_headers import http_date, metadata, opened, overrides, written

_TRIES = 10  # a directory that was made may be removed again before the blob is in it
# Request header -> the header in which reads show it again.
CONTENT = {
    "x-ms-blob-content-type": "content-type",
    "x-ms-blob-content-encoding": "content-encoding",
    "x-ms-blob-content-language": "content-language",
    "x-ms-blob-content-disposition": "content-disposition",
    "x-ms-blob-content-md5": "content-md5",
    "x-ms-blob-cache-control": "cache-control",
}
_PLAIN = ("content-type", "content-encoding", "content-language", "cache-control")
TIER = "Hot"


def put(call: BlobCall) -> Response:
    """Creates a blob of the body, in place of an existing one; readers see the old one whole or the new one whole."""
    call.request.required("x-ms-blob-type")
    upload = call.content()
    if call.request.header("x-ms-blob-content-md5") not in ("", upload.md5):
        raise refusal("Md5Mismatch")
    plain = {name: call.request.header(name) for name in _PLAIN if call.request.header(name)}
    facts = Facts(
        metadata=call.request.metadata(), content={**plain, "content-md5": upload.md5, **content(call.request)}
    )
    about = enter(call, upload.staged, facts)
    call.blocks.forget(call.request.target)
    return Response(201, {**written(about, facts), "content-md5": upload.md5, "x-ms-request-server-encrypted": "true"})


def enter(call: BlobCall, staged: Staged, facts: Facts) -> os.stat_result:
    """Puts a staged file in the blob's place, with its directories, and returns what the system knows of it then."""
    names = call.request.target.names
    for _ in range(_TRIES):
        try:
            with tree.spot(call.container, names) as place:
                return _enter(call, place, staged, facts)
        except ServiceError as error:
            if error.code != "ParentNotFound":
                raise
            _make_parents(call)
    raise refusal("BlobNameConflict", "Its directories were removed again and again.")


def _enter(call: BlobCall, place: Spot, staged: Staged, facts: Facts) -> os.stat_result:
    request, there = call.request, existing(place)
    facts["written"] = _state(os.fstat(staged.fd))
    if there and stat.S_ISDIR(there.st_mode):
        _vacate(place)
        there = None
    _check_new(request, there, call.disk.facts(request.target, place.path, there) if there else None)
    with call.disk.noting():
        # before it is there, so that no reader sees it without
        call.disk.note(request.target, place.path, os.fstat(staged.fd), facts)
        return staged.enter(place)


def _vacate(place: Spot) -> None:
    """Removes a directory in a blob's place if nothing is in it, as no client can see such a one."""
    try:
        os.rmdir(place.name, dir_fd=place.fd)
    except OSError:
        why = f"There are blobs, or directories that a job made, below {place.path!r}/"
        raise refusal("BlobNameConflict", f"{why}; give the blob another name.") from None


def _check_new(request: Request, there: os.stat_result | None, facts: Facts | None) -> None:
    if there and request.header("if-none-match").strip() == "*":
        raise refusal("BlobAlreadyExists")
    check_change(request, there, facts)
    if there and not request.may_replace:
        raise refusal("AuthorizationPermissionMismatch", "It allows only new blobs, and this one exists.")


def _make_parents(call: BlobCall) -> None:
    names = call.request.target.names
    for depth in range(1, len(names)):
        with tree.spot(call.container, names[:depth], follow=True) as place:
            with suppress(FileExistsError):
                os.mkdir(place.name, dir_fd=place.fd)
            if not stat.S_ISDIR(place.stat().st_mode):
                why = f"{'/'.join(names[:depth])!r} is a blob, so nothing can be below it"
                raise refusal("BlobNameConflict", f"{why}; give one of the two another name.")


def read(call: BlobCall) -> Response:
    """Sends a blob or a range of it."""
    request = call.request
    with tree.spot(call.container, request.target.names, follow=True) as place:
        fd = tree.open_file(place)
    handed_over = False
    try:
        about = os.fstat(fd)
        facts = call.disk.facts(request.target, place.path, about)
        headers = opened(shown(about, facts), request.query)
        answer = content_response(request, fd, about, facts, headers, whole="x-ms-blob-content-md5")
        handed_over = isinstance(answer.body, Stretch)
        return answer
    finally:
        if not handed_over:
            os.close(fd)


def properties(call: BlobCall) -> Response:
    """Returns a blob's size, times, content headers and metadata."""
    request = call.request
    with tree.file(call.container, request.target.names) as (fd, place):
        about = os.fstat(fd)
        facts = call.disk.facts(request.target, place.path, about)
    if not check_conditions(request, about, facts):
        return Response(304, {**written(about, facts), "x-ms-error-code": "ConditionNotMet"})
    tier = {"x-ms-access-tier": TIER, "x-ms-access-tier-inferred": "true"}
    told = {**shown(about, facts), **overrides(request.query), **tier}
    return Response(200, {**told, "content-length": str(about.st_size), "accept-ranges": "bytes"})


def read_metadata(call: BlobCall) -> Response:
    """Returns only a blob's metadata."""
    answer = properties(call)
    kept = ("etag", "last-modified")
    told = {name: value for name, value in answer.headers.items() if name.startswith("x-ms-meta-") or name in kept}
    return Response(answer.status, told)


def shown(about: os.stat_result, facts: Facts) -> dict[str, str]:
    """Returns the headers of a read of a blob."""
    kept = facts.get("content", {})
    if facts.get("written") != _state(about):  # a job has written into the file: the MD5 was that of what it was
        kept = {name: value for name, value in kept.items() if name != "content-md5"}
    return {
        "content-type": "application/octet-stream",
        **kept,
        **written(about, facts),
        **metadata(facts),
        "x-ms-blob-type": "BlockBlob",
        "x-ms-creation-time": http_date(created(about, facts)),
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
        "x-ms-server-encrypted": "true",
        **facts.get("copy", {}),
    }


def set_properties(call: BlobCall) -> Response:
    """Replaces a blob's content headers, as a whole."""
    return _noted(call, Facts(content=content(call.request)))


def set_metadata(call: BlobCall) -> Response:
    """Replaces a blob's metadata."""
    return _noted(call, Facts(metadata=call.request.metadata()))


def _noted(call: BlobCall, new: Facts) -> Response:
    request = call.request
    with tree.file(call.container, request.target.names) as (fd, place), call.disk.noting():
        about = os.fstat(fd)
        facts = call.disk.facts(request.target, place.path, about)
        check_change(request, about, facts)
        if "content" in new:
            new["written"] = _state(about)
        call.disk.note(request.target, place.path, about, {**facts, **new})
        about = touch(fd, about, about.st_mtime_ns)
    return Response(200, {**written(about), "x-ms-request-server-encrypted": "true"})


def delete(call: BlobCall) -> Response:
    """Deletes a blob, or a link itself, and the directories that nothing is in then."""
    request = call.request
    with tree.spot(call.container, request.target.names) as place:
        about = place.stat()
        check_change(request, about, call.disk.facts(request.target, place.path, about))
        if stat.S_ISDIR(about.st_mode):
            raise refusal("BlobNotFound")
        os.unlink(place.name, dir_fd=place.fd)
        call.disk.forget(request.target, place.path)
    call.blocks.forget(request.target)
    _prune(call)
    return Response(202, {"x-ms-delete-type-permanent": "true"})


def _prune(call: BlobCall) -> None:
    """Removes the directories above a blob that are empty now, as no client can see such ones."""
    names = call.request.target.names
    for depth in range(len(names) - 1, 0, -1):
        try:
            with tree.spot(call.container, names[:depth]) as place:
                os.rmdir(place.name, dir_fd=place.fd)
        except (OSError, ServiceError):
            return


def content(request: Request) -> dict[str, str]:
    """Returns the content headers that a request sets."""
    return {name: request.headers[sent] for sent, name in CONTENT.items() if request.header(sent)}


def check_change(request: Request, about: os.stat_result | None, facts: Facts | None) -> None:
    """Refuses a change whose condition does not hold; ``about`` is None for a blob that does not exist."""
    if not check_conditions(request, about, facts):
        raise refusal("ConditionNotMet")


def _state(about: os.stat_result) -> list[int]:
    return [about.st_mtime_ns, about.st_size]


def existing(place: Spot) -> os.stat_result | None:
    """Returns what the system knows of an entry, or None if it does not exist."""
    with suppress(FileNotFoundError):
        return place.stat()
    return None
