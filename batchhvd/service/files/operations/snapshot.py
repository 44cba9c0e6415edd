"""Snapshots of shares: taken here; read, listed and deleted by the operations that do so with shares."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from attrs import evolve

from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.disk.snapshot import Before, Taken
from batchhvd.service.storage.disk.tag import frozen
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.shown_headers import written

_MOST = 200  # snapshots of one share, as in Azure
_log = logging.getLogger(__name__)


def create(disk: Disk, request: Request) -> Response:
    """Takes a snapshot of a share; it is there when the answer comes."""
    said = request.metadata()
    with disk.snapshotting:
        try:
            about = os.stat(disk.share(request.target))
        except FileNotFoundError:
            raise refusal("ShareNotFound") from None
        snapshots = snapshots_of(disk, request.target)
        if len(snapshots) >= _MOST:
            raise refusal("ShareSnapshotCountExceeded")
        target = evolve(request.target, snapshot=_stamp(disk.now(), snapshots))
        disk.begin_era(request.target, target.snapshot)
        facts = _take(disk, target, snapshots[-1:], about, said)
    return Response(201, {**written(about, facts), "x-ms-snapshot": target.snapshot})


def snapshots_of(disk: Disk, target: Target) -> list[Target]:
    """Returns the snapshots of a share, the oldest first."""
    folder = disk.snapshots(target)
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    return [Target(target.account, target.share, snapshot=name) for name in names]


def snapshot_leases(disk: Disk, snapshots: Sequence[Target]) -> Iterator[Facts]:
    """Yields what is noted of each of some snapshots."""
    for snapshot in snapshots:
        yield disk.facts(snapshot, "", os.stat(disk.share(snapshot)))


def _take(disk: Disk, target: Target, previous: Sequence[Target], about: os.stat_result, said: dict[str, str]) -> Facts:
    share = evolve(target, snapshot="")
    known = disk.sidecar.below(disk.key(share))
    with disk.stage_folder() as folder:
        taken = Taken(disk.share(share), folder, known, _before(disk, previous))
        taken.fill()
        facts: Facts = {**disk.facts(share, "", about), "lease": None, "limit": None}
        facts["frozen"] = frozen(about, facts, 0)
        if said:
            facts["metadata"] = said
        key = disk.key(target)
        disk.sidecar.put_all(key, [*taken.rows, ("", folder.stat().st_ino, facts)])
        disk.sidecar.copy_permissions(disk.key(share), key)
        disk.share(target).parent.mkdir(parents=True, exist_ok=True)
        os.rename(folder, disk.share(target))
    _tell(target, taken)
    return facts


def _before(disk: Disk, previous: Sequence[Target]) -> Before:
    if not previous:
        return Before()
    return Before(disk.share(previous[0]), disk.sidecar.below(disk.key(previous[0])))


def _tell(target: Target, taken: Taken) -> None:
    where = f"the snapshot {target.snapshot} of {target.account}/{target.share}"
    _log.info("%s: %d files cloned, %d shared, %d copied", where, taken.cloned, taken.linked, taken.copied)
    if taken.unsteady:
        _log.warning("%s: written while they were copied: %s", where, ", ".join(taken.unsteady[:20]))
    if taken.unreadable:
        _log.warning("%s is without files that the service may not read: %s", where, ", ".join(taken.unreadable[:20]))


def _stamp(now: float, snapshots: Sequence[Target]) -> str:
    """Returns the name of a new snapshot: the time, or the next one after the last snapshot."""
    ticks = max(int(now * 10**7), _ticks(snapshots[-1].snapshot) + 1 if snapshots else 0)
    seconds, rest = divmod(ticks, 10**7)
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}.{rest:07d}Z"


def _ticks(stamp: str) -> int:
    moment = datetime.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return int(moment.timestamp()) * 10**7 + int(stamp[20:27])
