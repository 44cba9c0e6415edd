"""What tells one state of a file from another: its tag, its id, its times. A snapshot's files keep those they had."""

from __future__ import annotations

import os

from batchhvd.service.storage.disk.sidecar import Facts, FrozenFacts


def etag(about: os.stat_result, facts: Facts | None = None) -> str:
    """Returns a tag that changes whenever the content may have changed.

    The time of last change is in it for writes that leave the time of last write as it was.
    """
    frozen = (facts or {}).get("frozen")
    if frozen:
        return frozen["etag"]
    return f'"0x{about.st_mtime_ns:X}{about.st_ctime_ns:X}{about.st_size:X}{about.st_ino:X}"'


def file_id(about: os.stat_result, facts: Facts) -> int:
    """Returns the number by which a file is known."""
    frozen = facts.get("frozen")
    return frozen["id"] if frozen else about.st_ino


def created(about: os.stat_result, facts: Facts) -> int:
    """Returns when a file was created, in nanoseconds since 1970.

    A portable program cannot find that out: unless a client has said it, the earlier of its last write and its last
    change stands in.
    """
    frozen = facts.get("frozen")
    return facts.get("created") or (frozen["created"] if frozen else min(about.st_mtime_ns, about.st_ctime_ns))


def changed(about: os.stat_result, facts: Facts) -> int:
    """Returns when a file was last changed, in nanoseconds since 1970: what a client said, if nothing came after it."""
    frozen, said = facts.get("frozen"), facts.get("changed")
    if frozen:
        return frozen["changed"]
    return said[0] if said and said[1] == about.st_ctime_ns else about.st_ctime_ns


def frozen(about: os.stat_result, facts: Facts, rest: int) -> FrozenFacts:
    """Returns what a snapshot keeps of a file; ``rest`` is a time before which its changes are on the disk."""
    return {
        "etag": etag(about, facts),
        "id": about.st_ino,
        "created": created(about, facts),
        "changed": changed(about, facts),
        "origin": origin(about),
        "settled": about.st_ctime_ns < rest,
    }


def origin(about: os.stat_result) -> list[int]:
    """Returns the numbers that change with every write of a file at rest."""
    return [about.st_ino, about.st_mtime_ns, about.st_ctime_ns, about.st_size]
