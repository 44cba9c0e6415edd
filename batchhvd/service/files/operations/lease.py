"""Leases: who holds one may alone delete a share, or alone write a file, by requests.

They bind requests. A job that writes into the share's directory knows nothing of them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate

from batchhvd.service.storage.disk import tree
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts, LeaseFacts
from batchhvd.service.storage.disk.tag import etag
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request
from batchhvd.service.storage.protocol.response import Response

_LEAST, _MOST = 15, 60  # seconds of a lease that is not infinite
_STATUS = {"acquire": 201, "release": 200, "change": 200, "renew": 200, "break": 202}


def state(lease: LeaseFacts | None, now: float) -> str:
    """Returns ``available``, ``leased``, ``expired``, ``breaking`` or ``broken``."""
    if not lease:
        return "available"
    over = lease.get("ends") is not None and now >= (lease["ends"] or 0)
    if lease.get("broken"):
        return "broken" if over else "breaking"
    return "expired" if over else "leased"


def is_locked(facts: Facts, now: float) -> bool:
    """Says whether a lease is in force."""
    return state(facts.get("lease"), now) in ("leased", "breaking")


def lease_headers(request: Request, facts: Facts, now: float, since: str) -> dict[str, str]:
    """Returns what reads tell of a lease, to clients of the version ``since`` and later; older ones fail on it."""
    if not request.knows(since):
        return {}
    return {f"x-ms-lease-{name}": value for name, value in lease_words(facts, now).items()}


def lease_words(facts: Facts, now: float) -> dict[str, str]:
    """Returns status, state and, while it is in force, duration of a lease."""
    lease = facts.get("lease")
    current = state(lease, now)
    told = {"status": "locked" if current in ("leased", "breaking") else "unlocked", "state": current}
    if current == "leased" and lease:
        told["duration"] = "infinite" if lease["seconds"] < 0 else "fixed"
    return told


def check_lease(
    request: Request, facts: Facts, now: float, *, needed: bool, header: str = "x-ms-lease-id", kind: str = "File"
) -> None:
    """Refuses a request whose lease id does not fit the lease that there is.

    Args:
        request: the request.
        facts: what is noted of the share or file.
        now: seconds since 1970.
        needed: whether the operation needs the id while a lease is in force.
        header: the header with the id.
        kind: ``File`` or ``Container``, as Azure's codes call a share.
    """
    given, locked = request.header(header).lower(), is_locked(facts, now)
    lease = facts.get("lease")
    if not given:
        if needed and locked:
            raise refusal("LeaseIdMissing")
    elif not locked or not lease:
        raise refusal(f"LeaseNotPresentWith{kind}Operation")
    elif given != lease["id"]:
        raise refusal(f"LeaseIdMismatchWith{kind}Operation")


def lease_file(disk: Disk, request: Request) -> Response:
    """Acquires, releases, changes or breaks the lease of a file."""
    if request.header("x-ms-lease-action").lower() == "renew":
        raise refusal("InvalidHeaderValue", "A file's lease is infinite and needs no renewal.")
    if request.header("x-ms-lease-duration", "-1") != "-1":
        raise refusal("InfiniteLeaseDurationRequired")
    with tree.file(disk.share(request.target), request.target.names) as (fd, place):
        about = os.fstat(fd)
        with _changing(disk, request, place.path, about) as facts:
            headers = _act(request, facts, disk.now(), break_seconds=0)
    return _answer(request, about, facts, headers)


def lease_share(disk: Disk, request: Request) -> Response:
    """Acquires, releases, changes, renews or breaks the lease of a share or of a snapshot."""
    try:
        about = os.stat(disk.share(request.target))
    except FileNotFoundError:
        raise refusal("ShareSnapshotNotFound" if request.target.snapshot else "ShareNotFound") from None
    with _changing(disk, request, "", about) as facts:
        headers = _act(request, facts, disk.now(), break_seconds=None)
    return _answer(request, about, facts, headers)


@contextmanager
def _changing(disk: Disk, request: Request, path: str, about: os.stat_result) -> Iterator[Facts]:
    """Gives the facts of an entry and notes them afterwards; one change of a lease at a time."""
    with disk.noting():
        facts = disk.facts(request.target, path, about)
        yield facts
        disk.note(request.target, path, about, facts)


def _answer(request: Request, about: os.stat_result, facts: Facts, headers: dict[str, str]) -> Response:
    status = _STATUS[request.header("x-ms-lease-action").lower()]
    changed = formatdate(about.st_mtime, usegmt=True)
    return Response(status, {"etag": etag(about, facts), "last-modified": changed, **headers})


def _act(request: Request, facts: Facts, now: float, break_seconds: int | None) -> dict[str, str]:
    action = request.required("x-ms-lease-action").lower()
    if action == "acquire":
        return _acquire(request, facts, now)
    lease = facts.get("lease")
    if not lease:
        raise refusal("LeaseNotPresentWithLeaseOperation")
    if action == "break":
        return _break(request, lease, now, break_seconds)
    given = _id(request.required("x-ms-lease-id"))
    if given != lease["id"] and not (action == "change" and lease["id"] == request.header("x-ms-proposed-lease-id")):
        raise refusal("LeaseIdMismatchWithLeaseOperation")
    if action == "release":
        facts["lease"] = None
        return {}
    return _change(request, lease, now) if action == "change" else _renew(lease, now)


def _acquire(request: Request, facts: Facts, now: float) -> dict[str, str]:
    seconds = _seconds(request)
    wanted = request.header("x-ms-proposed-lease-id")
    new = _id(wanted) if wanted else str(uuid.uuid4())
    current = state(facts.get("lease"), now)
    if current == "breaking":
        raise refusal("LeaseIsBreakingAndCannotBeAcquired")
    if current == "leased" and (facts.get("lease") or {}).get("id") != new:
        raise refusal("LeaseAlreadyPresent")
    facts["lease"] = {"id": new, "seconds": seconds, "ends": None if seconds < 0 else now + seconds, "broken": False}
    return {"x-ms-lease-id": new}


def _change(request: Request, lease: LeaseFacts, now: float) -> dict[str, str]:
    new, current = _id(request.required("x-ms-proposed-lease-id")), state(lease, now)
    if current == "breaking":
        raise refusal("LeaseIsBreakingAndCannotBeChanged")
    if current != "leased":
        raise refusal("LeaseNotPresentWithLeaseOperation")
    lease["id"] = new
    return {"x-ms-lease-id": new}


def _renew(lease: LeaseFacts, now: float) -> dict[str, str]:
    if state(lease, now) in ("breaking", "broken"):
        raise refusal("LeaseIsBrokenAndCannotBeRenewed")
    lease["ends"] = None if lease["seconds"] < 0 else now + lease["seconds"]
    return {"x-ms-lease-id": lease["id"]}


def _break(request: Request, lease: LeaseFacts, now: float, seconds: int | None) -> dict[str, str]:
    """Breaks a lease: at once, or when the period that is asked for, or what is left of the lease, is over."""
    if state(lease, now) == "broken":
        raise refusal("LeaseAlreadyBroken")
    ends = lease.get("ends")
    left = max(0.0, ends - now) if ends is not None else None
    period = "x-ms-lease-break-period"
    asked = request.number(period, most=_MOST) if period in request.headers else None
    given = request.header("x-ms-lease-id")
    if given and _id(given) != lease["id"]:
        raise refusal("LeaseIdMismatchWithLeaseOperation")
    wait = seconds if seconds is not None else min([each for each in (asked, left) if each is not None], default=0)
    lease["broken"], lease["ends"] = True, now + wait
    return {"x-ms-lease-time": str(int(wait))}


def _seconds(request: Request) -> int:
    text = request.header("x-ms-lease-duration", "-1")
    if text == "-1":
        return -1
    return request.number("x-ms-lease-duration", least=_LEAST, most=_MOST)


def _id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise refusal("InvalidHeaderValue", f"A lease's id is a GUID, not {text[:60]!r}.") from None
