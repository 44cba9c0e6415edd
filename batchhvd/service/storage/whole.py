"""Shares and containers as wholes: what is known of one, and changes of that."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from batchhvd.service.storage.disk.content import touch
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.disk.sidecar import Facts
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.shown_headers import written


def share_facts(disk: Disk, target: Target) -> tuple[os.stat_result, Facts]:
    """Returns what the system and the sidecar know of a share or snapshot; refuses one that does not exist."""
    missing = "ShareSnapshotNotFound" if target.snapshot else "ShareNotFound"
    try:
        about = os.lstat(disk.share(target))
    except FileNotFoundError:
        raise refusal(missing) from None
    if not stat.S_ISDIR(about.st_mode):
        raise refusal(missing)
    return about, disk.facts(target, "", about)


def note_share(disk: Disk, request: Request, about: os.stat_result, facts: Facts) -> dict[str, str]:
    """Notes facts of a share, gives it another tag and time, and returns them as headers."""
    disk.note(request.target, "", about, facts)
    fd = os.open(disk.share(request.target), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return written(touch(fd, about, int(disk.now() * 1e9)))
    finally:
        os.close(fd)


def policies(disk: Disk, target: Target) -> Mapping[str, Mapping[str, str]]:
    """Returns a share's or container's stored access policies by id."""
    _, facts = share_facts(disk, Target(target.account, target.share))
    return {policy["id"]: policy for policy in facts.get("policies", [])}
