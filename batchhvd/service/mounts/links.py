"""Finds the directory on this machine that each mount of a job or of a setup task leads to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from batchhvd.service.mounts import machine
from batchhvd.service.mounts.model import MountPoint
from batchhvd.service.store import accounts
from batchhvd.service.store.records import Store

Targets = dict[MountPoint, Path]


class MountError(Exception):
    """A task cannot start because of something that it mounts.

    Attributes:
        path: what is missing or not allowed.
    """

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


def targets(
    store: Store, root: Path, mounted: Iterable[MountPoint], keys: Mapping[str, str], allowed: Sequence[str] = ()
) -> Targets:
    """Returns the directory of each mount.

    Args:
        store: all state.
        root: the service's folder.
        mounted: the mounts.
        keys: the keys that were given for storage accounts, by the account's name.
        allowed: the directories of the machine that may be mounted.

    Raises:
        MountError: an account, key, share or directory does not exist any more, or is not allowed.
    """
    return {mount: _target(store, root, mount, keys, allowed) for mount in mounted}


def _target(store: Store, root: Path, mount: MountPoint, keys: Mapping[str, str], allowed: Sequence[str]) -> Path:
    if mount.unmanaged:
        return _of_machine(mount.inside, allowed)
    if not mount.account:
        account, share = _server(store, mount)
        return _directory(root, account, share, mount.inside)
    _check_key(store, mount.account, keys.get(mount.account, ""))
    if mount.container:
        return _container(root, mount.account, mount.share)
    return _directory(root, mount.account, mount.share, mount.inside)


def _container(root: Path, account: str, container: str) -> Path:
    place = root / "containers" / account / container
    if not place.is_dir():
        raise MountError(f"The account {account} has no container {container} any more.", f"{account}/{container}")
    return place


def _of_machine(directory: str, allowed: Sequence[str]) -> Path:
    why = machine.refusal(directory, allowed)
    if why:
        raise MountError(f"The job mounts {why}.", directory)
    return Path(os.path.realpath(directory))


def _server(store: Store, mount: MountPoint) -> tuple[str, str]:
    record = store.get(mount.share)
    if record is None:
        raise MountError(f"The file server {mount.share} does not exist any more.", mount.path)
    return accounts.share_of(record)


def _check_key(store: Store, account: str, key: str) -> None:
    record = accounts.find(store, account)
    if record is None:
        raise MountError(f"The storage account {account} does not exist any more.", account)
    if key not in accounts.keys(record):
        raise MountError(f"The key given for the storage account {account} is not valid any more.", account)


def _directory(root: Path, account: str, share: str, inside: str) -> Path:
    top = root / "shares" / account / share
    if not top.is_dir():
        raise MountError(f"The account {account} has no share {share} any more.", f"{account}/{share}")
    if inside and not (top / inside).is_dir():
        text = f"The share {share} of the account {account} has no directory {inside}."
        raise MountError(text, f"{account}/{share}/{inside}")
    return top / inside
