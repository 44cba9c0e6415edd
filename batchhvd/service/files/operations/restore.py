"""Deleted shares: kept for some days if the service is told to, and restored with their snapshots."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import frozen

from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.disk.sidecar import Facts
from batchhvd.service.files.operations.properties import written
from batchhvd.service.files.protocol.refusal import refusal
from batchhvd.service.files.protocol.request import Request, Target
from batchhvd.service.files.protocol.response import Response

_DAY = 86400.0
_VERSION = re.compile(r"[0-9A-F]{16}")
_EPOCH = 116444736000000000  # 1970 in the 100 nanoseconds since 1601 by which Azure counts versions


@frozen
class Grave:
    """A deleted share that can be restored.

    Attributes:
        target: the share.
        version: what distinguishes it from others of its name.
        folder: where it lies.
        about: what the system knows of its directory.
        facts: what is noted of it.
    """

    target: Target
    version: str
    folder: Path
    about: os.stat_result
    facts: Facts

    def days_left(self, disk: Disk) -> int:
        """Returns for how many days more it is kept."""
        return max(0, disk.kept_days - int((disk.now() - self.facts.get("deleted", 0.0)) // _DAY))


def bury(disk: Disk, target: Target, snapshots: Sequence[Target]) -> None:
    """Deletes a share with its snapshots, or keeps them for as many days as the service is told to."""
    if disk.kept_days <= 0:
        for snapshot in snapshots:
            disk.remove(disk.share(snapshot), disk.key(snapshot))
        disk.remove(disk.share(target), disk.key(target))
        return
    version = f"{_EPOCH + time.time_ns() // 100:016X}"
    folder = disk.deleted(target) / version
    (folder / "snapshots").mkdir(parents=True)
    about = disk.share(target).stat()
    disk.note(target, "", about, {**disk.facts(target, "", about), "deleted": disk.now(), "lease": None})
    key = _key(target, version)
    for snapshot in snapshots:
        stamp = snapshot.snapshot
        disk.rename(disk.share(snapshot), folder / "snapshots" / stamp, disk.key(snapshot), f"{key}@{stamp}")
    disk.rename(disk.share(target), folder / "share", disk.key(target), key)


def graves(disk: Disk, account: str) -> Iterator[Grave]:
    """Yields the deleted shares of an account that can be restored; removes those whose days are over."""
    top = disk.deleted(Target(account))
    for name in sorted(os.listdir(top)) if top.is_dir() else []:
        for version in sorted(os.listdir(top / name)):
            found = _grave(disk, Target(account, name), version)
            if found is not None:
                yield found


def restore(disk: Disk, request: Request) -> Response:
    """Restores a deleted share with its snapshots."""
    name, version = request.required("x-ms-deleted-share-name"), request.required("x-ms-deleted-share-version")
    if name != request.target.share:
        raise refusal("InvalidHeaderValue", "A share can only be restored under the name that it had.")
    grave = _grave(disk, request.target, version) if _VERSION.fullmatch(version) else None
    if grave is None:
        raise refusal("ShareNotFound", "No deleted share has this name and version.")
    if disk.share(request.target).exists():
        raise refusal("ShareAlreadyExists", "Delete or rename it before the deleted one is restored.")
    disk.share(request.target).parent.mkdir(parents=True, exist_ok=True)
    key = _key(request.target, version)
    facts: Facts = {**grave.facts, "deleted": 0.0}
    disk.rename(grave.folder / "share", disk.share(request.target), key, disk.key(request.target))
    disk.note(request.target, "", grave.about, facts)
    for stamp in sorted(os.listdir(grave.folder / "snapshots")):
        target = Target(request.target.account, name, snapshot=stamp)
        disk.share(target).parent.mkdir(parents=True, exist_ok=True)
        disk.rename(grave.folder / "snapshots" / stamp, disk.share(target), f"{key}@{stamp}", disk.key(target))
    disk.discard(grave.folder)
    return Response(201, written(grave.about, facts))


def _grave(disk: Disk, target: Target, version: str) -> Grave | None:
    folder, key = disk.deleted(target) / version, _key(target, version)
    try:
        about = os.stat(folder / "share")
    except FileNotFoundError:
        return None
    facts = disk.sidecar.get(key, "", about.st_ino)
    if disk.now() - facts.get("deleted", 0.0) < disk.kept_days * _DAY:
        return Grave(target, version, folder, about, facts)
    disk.discard(folder)
    disk.sidecar.forget_share(key)
    for stamp in disk.sidecar.shares(f"{key}@"):
        disk.sidecar.forget_share(stamp)
    return None


def _key(target: Target, version: str) -> str:
    return f"{target.account}/{target.share}!{version}"
