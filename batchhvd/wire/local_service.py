"""The local service seen as a process: whether one runs for a root, and how to end it.

A service holds a lock on its root for as long as it lives, whatever files an earlier one has left there.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path

from attrs import frozen

from batchhvd.errors import AccessDeniedError
from batchhvd.wire.facts.process_start import ticks
from batchhvd.wire.waiting import Clock, Pace, wait_until


@frozen
class Running:
    """A service that runs.

    Attributes:
        root: its folder.
        endpoint: its URL, or "" while it starts.
        pid: its process.
        started: when it started, as ISO 8601.
        engine: what runs its jobs.
        version: of the package that it runs.
    """

    root: str
    endpoint: str
    pid: int
    started: str
    engine: str
    version: str


def running(root: str | os.PathLike[str]) -> Running | None:
    """Returns the service of a root, or None where none runs."""
    folder = Path(root)
    if not _held(folder / "lock"):
        return None
    try:
        about = json.loads((folder / "service.json").read_text(encoding="utf-8"))
        pid, began = int(about["pid"]), about.get("ticks")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # it holds the lock and has not said yet who it is
    if pid <= 1 or (began is not None and ticks(pid) != began):  # an earlier one said that, whose id another may have
        return None
    endpoint = _text(folder / "endpoint")
    facts = {name: str(about.get(name, "")) for name in ("started", "engine", "version")}
    return Running(str(folder), endpoint, pid, **facts)


def stop(root: str | os.PathLike[str], *, timeout: float = 15.0, clock: Clock | None = None) -> bool:
    """Ends the service of a root and waits until it is gone; its jobs go on, and the next service finds them.

    Args:
        root: the service's folder.
        timeout: seconds to wait.
        clock: the clock to sleep by.

    Returns:
        Whether there was one.

    Raises:
        AccessDeniedError: it is another user's.
        WaitTimeoutError: it did not end in time.
    """
    found = running(root)
    if found is None:
        return False
    try:
        os.kill(found.pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    except PermissionError as error:
        message = f"the service of {found.root} (process {found.pid}) is another user's. End it as that user"
        raise AccessDeniedError(message) from error
    wait_until(
        lambda: _held(Path(root) / "lock"),
        lambda held: not held,
        timeout=timeout,
        describe=lambda held: "it still runs",
        what=f"the service of {found.root} (process {found.pid}) to end",
        clock=clock,
        pace=Pace(first=0.02, longest=0.2),
    )
    return True


def _held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:  # no such root
        return False


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
