"""Notices what happens to the service's folder while it runs: it is renamed or removed, or its lock is taken away."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path

from batchhvd.service.process import Ticking

_GRACE = 1.0  # seconds: the whole folder may be about to be removed
log = logging.getLogger("batchhvd.service.root_watch")


class RootWatch:
    """Watches a root that this process holds.

    The folder itself is locked as well as the file ``lock``: whoever removes the file does not let in a second service.
    """

    def __init__(self, root: Path, lock: int) -> None:
        """Begins to watch.

        Args:
            root: the folder.
            lock: the open lock file, which is held.
        """
        self._root, self._path, self._lock = root, root / "lock", lock
        self._known, self._said = _identity(root), ""
        self._missing_since: float | None = None

    def problem(self) -> str:
        """Returns what is wrong with the folder, as a sentence with the remedy; "" if nothing is."""
        if _identity(self._root) == self._known:
            return ""
        what = "is another one now" if self._root.exists() else "is not there any more"
        return (
            f"The folder {self._root} of this service (process {os.getpid()}) {what}: it was renamed or removed while "
            "the service runs. Put it back, or end the service and start it where the folder is now."
        )

    def look(self) -> None:
        """Logs what has changed, and makes a lock again that was removed."""
        problem = self.problem()
        if problem != self._said:
            log.error(problem) if problem else log.info("The folder %s is back.", self._root)
            self._said = problem
        if problem or _identity(self._path) == _of(os.fstat(self._lock)):
            self._missing_since = None
        elif self._missing_since is None:
            self._missing_since = time.monotonic()
        elif time.monotonic() - self._missing_since > _GRACE:
            self._restore()

    def _restore(self) -> None:
        held = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # a client tests it for a moment
            os.close(held)
            return
        self._lock = held  # the old one is closed with the process
        log.warning("The file %s was removed while the service runs; it was made again.", self._path)


class WatchedTicks:
    """Ticks of a scheduler that stand still while the root is not there: nothing may be judged by its absence."""

    def __init__(self, scheduler: Ticking, watch: RootWatch) -> None:
        self._scheduler, self._watch = scheduler, watch

    @property
    def pause(self) -> float:
        """How many seconds the next tick may wait."""
        return self._scheduler.pause

    def tick(self) -> None:
        """Moves everything one step, if the root is there."""
        if not self._watch.problem():
            self._scheduler.tick()


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        return _of(os.stat(path))
    except OSError:
        return None


def _of(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino
