"""The service as a process: its log, its scheduler's thread, and whether anything still needs it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Protocol

from batchhvd.service.http import limits

log = logging.getLogger("batchhvd.service")


def log_to(path: Path) -> None:
    """Sends the service's log to a file of limited size."""
    handler = RotatingFileHandler(path, maxBytes=5_000_000, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(Sparing())
    for name in ("batchhvd", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False


class Sparing(logging.Filter):
    """Lets a few lines a second about refused requests into the log: anybody on this machine can cause them."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now, self._second = now, 0
        self._written = self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Says whether a line is written; the first one after some that were not says how many those were."""
        unreadable = record.name == "uvicorn.error" and record.levelno == logging.WARNING
        if not (unreadable or getattr(record, "refused", False)):
            return True
        second = int(self._now())
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= limits.LOG_LINES:
            self._left_out += 1
            return False
        self._written += 1
        if self._left_out:
            record.msg = f"{record.msg} [{self._left_out} lines about refused requests were left out before this one]"
            self._left_out = 0
        return True


class Activity:
    """Knows when the service was last needed."""

    def __init__(self, busy: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        self._busy, self._now = busy, now
        self._last = now()

    def touch(self) -> None:
        """Notes that the service is needed now."""
        self._last = self._now()

    def unneeded(self, seconds: float) -> bool:
        """Says whether nothing has needed the service for some seconds; a job that has not ended needs it."""
        if self._now() - self._last <= seconds:
            return False
        if self._busy():
            self.touch()
            return False
        return True


class Ticking(Protocol):
    """What moves with each tick, and says afterwards how many seconds the next one may wait."""

    pause: float

    def tick(self) -> None:
        """Moves everything one step."""


def schedule(scheduler: Ticking, wake: threading.Event, stop: threading.Event) -> None:
    """Calls the scheduler again and again: at once when woken, and when its pause is over."""
    last = ""
    while not stop.is_set():
        wake.clear()
        try:
            scheduler.tick()
            last = ""
        except Exception as error:
            # The next tick may well succeed; a scheduler that has stopped never would.
            if repr(error) != last:  # a full disk fails each tick
                log.exception("the scheduler failed; it goes on, and says so again only if it fails otherwise")
            last = repr(error)
        wake.wait(scheduler.pause)
