"""When a process started: with it, another process that was given the same id is not mistaken for it."""

from __future__ import annotations


def ticks(pid: int) -> int | None:
    """Returns when a process started, in the kernel's clock ticks; None if it is gone, or this is not Linux."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] != "Z" else None
