"""Deleted shares: kept for some days if the service is told to, and restored with their snapshots."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from attrs import frozen

from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.graves import VERSION
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.protocol.response import Response
from batchhvd.service.storage.shown_headers import written

_DAY = 86400.0
_EPOCH = 116444736000000000  # 1970 in the 100 nanoseconds since 1601 by which Azure counts versions


@frozen
class Grave:
    """A deleted share that can be restored.

    Attributes:
        target: the share.
        version: what distinguishes it from others of its name.
        about: what the system knows of its directory.
        facts: what is noted of it.
    """

    target: Target
    version: str
    about: os.stat_result
    facts: Facts

    def days_left(self, disk: Disk) -> int:
        """Returns for how many days more it is kept."""
        return max(0, _kept(disk, self.target, self.facts) - int((disk.now() - self.facts.get("deleted", 0.0)) // _DAY))


def bury(disk: Disk, target: Target, snapshots: Sequence[Target]) -> None:
    """Deletes a share with its snapshots, or keeps them for as many days as the service is told to."""
    days = disk.kept_days(target.account)
    if days <= 0:
        for snapshot in snapshots:
            disk.remove(disk.share(snapshot), disk.key(snapshot))
        disk.remove(disk.share(target), disk.key(target))
        return
    about = disk.share(target).stat()
    facts = disk.facts(target, "", about)
    disk.note(target, "", about, {**facts, "deleted": disk.now(), "kept": days, "lease": None})
    disk.bury(target, f"{_EPOCH + time.time_ns() // 100:016X}")


def graves(disk: Disk, account: str) -> Iterator[Grave]:
    """Yields the deleted shares of an account that can be restored; removes those whose days are over."""
    for target, version in list(disk.plots(account)):
        found = _grave(disk, target, version)
        if found is not None:
            yield found


def restore(disk: Disk, request: Request) -> Response:
    """Restores a deleted share with its snapshots."""
    name, version = request.required("x-ms-deleted-share-name"), request.required("x-ms-deleted-share-version")
    if name != request.target.share:
        raise refusal("InvalidHeaderValue", "A share can only be restored under the name that it had.")
    grave = _grave(disk, request.target, version) if VERSION.fullmatch(version) else None
    if grave is None:
        raise refusal("ShareNotFound", "No deleted share has this name and version.")
    if disk.share(request.target).exists():
        raise refusal("ShareAlreadyExists", "Delete it before the deleted one is restored.")
    disk.restore(request.target, version)
    disk.note(request.target, "", grave.about, {**grave.facts, "deleted": 0.0, "kept": 0})
    return Response(201, written(grave.about, grave.facts))


def _kept(disk: Disk, target: Target, facts: Facts) -> int:
    """Returns for how many days a deleted share is kept: as was the rule when it was deleted."""
    return facts.get("kept") or disk.kept_days(target.account)


def _grave(disk: Disk, target: Target, version: str) -> Grave | None:
    plot = disk.plot(target, version)
    try:
        about = os.stat(plot.grave / "share")
    except FileNotFoundError:
        return None
    facts = disk.sidecar.get(plot.buried, "", about.st_ino)
    if disk.now() - facts.get("deleted", 0.0) < _kept(disk, target, facts) * _DAY:
        return Grave(target, version, about, facts)
    disk.discard(plot.grave)  # first: a grave of which nothing is noted would be restored at the next start
    for key in disk.sidecar.shares(plot.buried):
        disk.sidecar.forget_share(key)
    return None
