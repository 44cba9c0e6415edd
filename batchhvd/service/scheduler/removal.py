"""Removes what is being deleted, from the bottom up and slice by slice: a resource goes when nothing is left in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from attrs import define, field

from batchhvd.service.store import accounts, doomed, trash
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.doomed import DoomedRecord
from batchhvd.service.store.records import Store

log = logging.getLogger("batchhvd.service.scheduler.removal")
_STORAGE = ("storageAccounts", "fileServers")
_CONTAINERS = ("groups", "workspaces", "experiments")


@define
class Removal:
    """Removes what is being deleted; each ``step`` looks at one slice of it.

    It remembers only how far it has got: a new one begins again.

    Attributes:
        left: whether anything has to wait, for processes to end or for the next step.
        goes_on: whether the next step has something to do at once.
    """

    store: Store
    root: Path
    left: bool = False
    goes_on: bool = False
    _before: str = ""
    _unmarked: dict[str, str] = field(factory=dict)  # up to where each container's contents are marked; "" is all
    _users: Sequence[tuple[str, str]] = ()  # the jobs that may run, with their clusters

    def step(self, time: str) -> None:
        """Removes what can go now, and marks what is in it.

        Args:
            time: the present time as documents show it.
        """
        found = doomed.page(self.store, self._before)
        self._before = found[-1].key if len(found) == doomed.SLICE else ""
        self.goes_on = bool(self._before)
        self._users = self.store.users() if found else ()
        leaves = [record for record in found if record.type not in _CONTAINERS]
        containers = [record for record in found if record.type in _CONTAINERS]
        left = self._removed(leaves)
        for record in containers:  # the innermost first
            left += self._removed([record])
        for record in reversed(containers):
            self._mark_below(record, time)
        self.left = bool(left) or self.goes_on

    def _mark_below(self, container: DoomedRecord, time: str) -> None:
        """Marks the next slice of what is in a container, unless the container around it does that already."""
        key = container.key
        if self._unmarked.get(key) == "" or any(key.startswith(f"{other}/") for other in self._unmarked):
            return
        found = doomed.below(self.store, key, self._unmarked.get(key, ""))
        doomed.mark(self.store, [record.key for record in found if not record.marked], time)
        self._unmarked[key] = found[-1].key if len(found) == doomed.SLICE else ""
        self.goes_on |= bool(found)

    def _removed(self, records: Sequence[DoomedRecord]) -> int:
        """Removes those of some resources that nothing uses any more, and returns how many stay."""
        gone = [record.key for record in records if self._tried(record)]
        doomed.remove(self.store, gone)
        for key in gone:
            self._unmarked.pop(key, None)
        return len(records) - len(gone)

    def _tried(self, record: DoomedRecord) -> bool:
        """Does the same as ``_is_free``, and discards what a free resource has on the disk."""
        try:
            return self._is_free(record) and self._discarded(record)
        except Exception:  # whatever is wrong with one record must not keep the others
            log.exception("%s could not be removed; the next tick tries again", record.id)
            return False

    def _is_free(self, record: DoomedRecord) -> bool:
        if record.type == "jobs":
            return record.has_ended
        if record.type == "clusters":
            return not self._prepares(record) and all(cluster != record.key for _, cluster in self._users)
        if record.type in _STORAGE:  # jobs write to it until they have ended
            return not any(job.startswith(record.parent + "/") for job, _ in self._users)
        return not self.store.holds_any(record.key)

    def _prepares(self, record: DoomedRecord) -> bool:
        found = self.store.get(record.key)
        return found is not None and bool(StoredCluster.of(found).preparing)

    def _discarded(self, record: DoomedRecord) -> bool:
        if record.type == "jobs" and record.uuid:  # a damaged record does not say which folder is its own
            trash.discard(self.root, self.root / "tasks" / record.uuid)
        found = self.store.get(record.key) if record.type in _STORAGE else None
        if found is not None:
            name = found.document["name"] if record.type == "storageAccounts" else accounts.share_of(found)[0]
            for folder in accounts.folders(self.root, str(name)):
                trash.discard(self.root, folder)
        return True
