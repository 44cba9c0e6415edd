"""Makes a job's mount roots on this machine: one symbolic link for each mounted share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from batchhvd.service.mounts import machine
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts.model import Mount
from batchhvd.service.scheduler import task as environment
from batchhvd.service.scheduler.outcome import plain
from batchhvd.service.scheduler.task import Plan
from batchhvd.service.store.records import Record, Store

Targets = dict[Mount, Path]


class Missing(Exception):
    """A job cannot start because of something that it mounts.

    Attributes:
        error: the job's error, as the documents show it.
    """

    def __init__(self, code: str, message: str, **details: str) -> None:
        super().__init__(message)
        self.error = plain(code, message, **details)


def targets(store: Store, root: Path, job: Record, cluster: Record, allowed: Sequence[str] = ()) -> Targets:
    """Returns the directory of each of a job's mounts.

    Args:
        store: all state.
        root: the service's folder.
        job: the job.
        cluster: its cluster.
        allowed: the directories of the machine that may be mounted.

    Raises:
        Missing: account, key, share or directory is not there any more, or not allowed; the message says which of them.
    """
    keys = {**cluster.private.get("keys", {}), **job.private.get("keys", {})}
    return _targets(store, root, environment.mounts_of(job, cluster), keys, allowed)


def cluster_targets(store: Store, root: Path, cluster: Record, allowed: Sequence[str] = ()) -> Targets:
    """Returns the directory of each of a cluster's own mounts.

    Raises:
        Missing: as for a job.
    """
    found = mounts.every({}, cluster.document["properties"])
    return _targets(store, root, found, cluster.private.get("keys", {}), allowed)


def _targets(
    store: Store, root: Path, mounted: Iterable[Mount], keys: Mapping[str, str], allowed: Sequence[str]
) -> Targets:
    found = {}
    for mount in mounted:
        if mount.unmanaged:
            found[mount] = _of_machine(mount.inside, allowed)
            continue
        account, share = (mount.account, mount.share) if mount.account else _server(store, mount)
        if mount.account:
            _check_key(store, account, keys.get(account, ""))
        found[mount] = _directory(root, account, share, mount.inside)
    return found


def _of_machine(directory: str, allowed: Sequence[str]) -> Path:
    why = machine.refusal(directory, allowed)
    if why:
        raise Missing("MountFailed", f"The job mounts {why}.", Path=directory)
    return Path(os.path.realpath(directory))


def _server(store: Store, mount: Mount) -> tuple[str, str]:
    record = store.get(mount.share)
    if record is None:
        raise Missing("MountFailed", f"The file server {mount.share} does not exist any more.", Path=mount.path)
    return str(record.private["account"]), str(record.private["share"])


def _check_key(store: Store, account: str, key: str) -> None:
    records = [record for record in store.list("storageAccounts") if record.document["name"] == account]
    if not records:
        raise Missing("MountFailed", f"The storage account {account} does not exist any more.", Path=account)
    if key not in [entry["value"] for entry in records[0].private["keys"]]:
        raise Missing(
            "MountFailed", f"The key given for the storage account {account} is not valid any more.", Path=account
        )


def _directory(root: Path, account: str, share: str, inside: str) -> Path:
    top = root / "shares" / account / share
    if not top.is_dir():
        raise Missing("MountFailed", f"The account {account} has no share {share} any more.", Path=f"{account}/{share}")
    if inside and not (top / inside).is_dir():
        text = f"The share {share} of the account {account} has no directory {inside}."
        raise Missing("MountFailed", text, Path=f"{account}/{share}/{inside}")
    return top / inside


def check_script(job: Record, found: Mapping[Mount, Path]) -> None:
    """Looks for a job's script before nodes are taken, unless a preparation may still bring it.

    Raises:
        Missing: it lies on a mount and is not there.
    """
    properties = job.document["properties"]
    path = environment.script_of(properties)
    place = environment.locate(path, found)
    if place is not None and not place.exists() and "jobPreparation" not in properties:
        raise Missing("ScriptNotFound", f"There is no file {path} on the mounted share.", Path=path)


def lay(plan: Plan) -> None:
    """Makes the links and directories of a plan; what is there already stays."""
    for link, target in plan.links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)
    folder = Path(plan.task.folder)
    for directory in (*plan.directories, folder / "mounts", folder / "cluster", folder / "shared"):
        directory.mkdir(parents=True, exist_ok=True)


def begin_logs(logs: Path) -> None:
    """Makes a job's two logs, so that they are listed and followed from the moment that it is said to run."""
    for name in ("stdout.txt", "stderr.txt"):
        (logs / name).touch()
