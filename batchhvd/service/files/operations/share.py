"""Operations on shares."""

from __future__ import annotations

import os

from batchhvd.service.files.operations.lease import check_lease, is_locked, lease_headers
from batchhvd.service.files.operations.offer import QUOTA, choose, tier, told
from batchhvd.service.files.operations.restore import bury
from batchhvd.service.files.operations.snapshot import snapshot_leases, snapshots_of
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.room import usage
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol import xml
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.protocol.response import Response, xml_response
from batchhvd.service.storage.shown_headers import http_date, metadata, written
from batchhvd.service.storage.whole import note_share, share_facts

_SHARE_LEASES = "2020-02-10"  # the version that brought them
_IN_BYTES = "2018-11-09"  # the version since which statistics count bytes, not GiB


def create(disk: Disk, request: Request) -> Response:
    """Creates a share."""
    share, facts = disk.share(request.target), Facts(metadata=request.metadata())
    choose(disk, request, facts)
    share.parent.mkdir(parents=True, exist_ok=True)
    try:
        share.mkdir()
    except FileExistsError:
        raise refusal("ShareAlreadyExists") from None
    about = share.stat()
    disk.note(request.target, "", about, facts)
    return Response(201, {**written(about), "x-ms-share-quota": str(facts.get("quota") or QUOTA)})


def properties(disk: Disk, request: Request) -> Response:
    """Returns quota, tier, lease and metadata of a share or of a snapshot."""
    about, facts = checked(disk, request)
    shown = {
        **told(disk, request.target.account, facts, about.st_mtime),
        "x-ms-share-quota": str(facts.get("quota") or QUOTA),
        "x-ms-access-tier": tier(disk, request.target.account, facts),
        "x-ms-access-tier-change-time": http_date(int((facts.get("tiered") or about.st_mtime) * 1e9)),
        "x-ms-has-immutability-policy": "false",
    }
    lease = lease_headers(request, facts, disk.now(), since=_SHARE_LEASES)
    return Response(200, {**written(about, facts), **metadata(facts), **shown, **lease})


def read_metadata(disk: Disk, request: Request) -> Response:
    """Returns a share's metadata."""
    about, facts = checked(disk, request)
    return Response(200, {**written(about, facts), **metadata(facts)})


def set_properties(disk: Disk, request: Request) -> Response:
    """Sets a share's quota and tier, and what else its account offers."""
    with disk.noting():
        about, facts = checked(disk, request)
        choose(disk, request, facts)
        return Response(200, note_share(disk, request, about, facts))


def set_metadata(disk: Disk, request: Request) -> Response:
    """Replaces a share's metadata."""
    said = request.metadata()
    with disk.noting():
        about, facts = checked(disk, request)
        return Response(200, note_share(disk, request, about, {**facts, "metadata": said}))


def delete(disk: Disk, request: Request) -> Response:
    """Deletes a share with all that is in it, or one snapshot of it."""
    _, facts = share_facts(disk, request.target)
    wanted, now = request.header("x-ms-delete-snapshots").lower(), disk.now()
    check_lease(request, facts, now, needed=True, kind="Container")
    if request.target.snapshot:
        if wanted:
            raise refusal("InvalidHeaderValue", "x-ms-delete-snapshots goes with the share, not with a snapshot.")
        disk.remove(disk.share(request.target), disk.key(request.target))
        with disk.snapshotting:
            disk.forget_eras(Target(request.target.account, request.target.share))
        return Response(202)
    with disk.snapshotting:  # one that is being taken must not outlive its share
        snapshots = snapshots_of(disk, request.target)
        if snapshots and not wanted:
            raise refusal("ShareHasSnapshots")
        if wanted != "include-leased" and any(is_locked(each, now) for each in snapshot_leases(disk, snapshots)):
            raise refusal("LeaseIdMissing", "A snapshot has a lease; send x-ms-delete-snapshots: include-leased.")
        bury(disk, request.target, snapshots)
    return Response(202)


def stats(disk: Disk, request: Request) -> Response:
    """Returns how much disk space a share takes."""
    about, facts = checked(disk, request)
    size = usage(disk.share(request.target))
    used = {"ShareUsageBytes": size} if request.knows(_IN_BYTES) else {"ShareUsage": -(-size >> 30)}
    return xml_response(xml.tree("ShareStats", used), written(about, facts))


def checked(disk: Disk, request: Request) -> tuple[os.stat_result, Facts]:
    """Returns what is known of a share, whose lease a request names or does not name."""
    about, facts = share_facts(disk, request.target)
    check_lease(request, facts, disk.now(), needed=False, kind="Container")
    return about, facts
