"""Removal of the code of old runs that no remaining job needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from batchhvd.errors import NotFoundError
from batchhvd.wire.models import moment

if TYPE_CHECKING:
    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.share import FileShare
    from batchhvd.resources.values.file_entry import FileEntry

KEPT = (".batchhvd/code", ".batchhvd/replay")
_ROUNDED = timedelta(seconds=2)  # times of files are whole seconds


def prune_code(groups: Iterable[ResourceGroup], *, dry_run: bool = False) -> int:
    """Removes kept code that no remaining job has used, and returns how many files that were or would be.

    A run marks the code that it uses. What was marked before the oldest remaining job was created is not needed.

    Args:
        groups: all groups of the service, since a job may mount a share of another group.
        dry_run: only count.
    """
    groups = list(groups)
    oldest = min((when for group in groups for when in _created(group)), default=None)
    count = 0
    for share in (share for group in groups for account in group.storage_accounts() for share in account.shares()):
        for entry in _old(share, oldest):
            count += 1
            if not dry_run:
                share.delete_file(entry.path)
    return count


def _created(group: ResourceGroup) -> Iterator[datetime]:
    for workspace in group.workspaces():
        for experiment in workspace.experiments():
            for job in experiment.jobs():
                when = moment((job.document.get("properties") or {}).get("creationTime"))
                if when is not None:
                    yield when


def _old(share: FileShare, oldest: datetime | None) -> Iterator[FileEntry]:
    for place in KEPT:
        try:
            found = list(share.files(place, recursive=True))
        except NotFoundError:  # it has none
            continue
        for entry in found:
            if not entry.is_directory and (oldest is None or (entry.modified and entry.modified < oldest - _ROUNDED)):
                yield entry
