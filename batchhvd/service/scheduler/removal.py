"""Removes what is being deleted, from the bottom up: a resource goes when nothing is left in it."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from batchhvd.service.store import accounts
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Record, Store

log = logging.getLogger("batchhvd.service.scheduler.removal")
_STORAGE = ("storageAccounts", "fileServers")


def run(store: Store, root: Path) -> bool:
    """Removes what can go now, and says whether anything has to wait for processes to end."""
    doomed = store.doomed()
    if not doomed:
        return False
    active = [StoredJob.of(record) for record in store.active()]
    left = [record for record in sorted(doomed, key=_depth) if not _tried(store, root, record, active)]
    return bool(left)


def _tried(store: Store, root: Path, record: Record, active: Sequence[StoredJob]) -> bool:
    try:
        return _remove(store, root, record, active)
    except Exception:  # whatever is wrong with one record must not keep the others
        log.exception("%s could not be removed; the next tick tries again", record.id)
        return False


def _depth(record: Record) -> tuple[int, int]:
    """Sorts the deepest first, and storage last on its level, because jobs write to it until they have ended."""
    return -record.id.count("/"), record.type in _STORAGE


def _remove(store: Store, root: Path, record: Record, active: Sequence[StoredJob]) -> bool:
    if _in_use(store, record, active):
        return False
    if record.type == "jobs":
        if "uuid" in record.private:  # a damaged record does not say which folder is its own
            _discard(root / "tasks" / StoredJob.of(record).uuid)
    elif record.type in _STORAGE:
        name = record.document["name"] if record.type == "storageAccounts" else accounts.share_of(record)[0]
        _discard(root / "shares" / name)
    store.delete(record.id)
    return True


def _in_use(store: Store, record: Record, active: Sequence[StoredJob]) -> bool:
    if record.type == "jobs":
        return not StoredJob.of(record).has_ended
    if record.type == "clusters":
        return bool(StoredCluster.of(record).preparing) or any(job.cluster == record.id.lower() for job in active)
    if record.type in _STORAGE:
        return any(job.key.startswith(record.parent + "/") for job in active)
    return bool(store.under(record.id))


def _discard(folder: Path) -> None:
    """Removes a folder; its name is free at once, however long the rest takes."""
    if folder.exists():
        shutil.rmtree(folder.rename(folder.with_name(f".deleted-{uuid.uuid4().hex}")), ignore_errors=True)
