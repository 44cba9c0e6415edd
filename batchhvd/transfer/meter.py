"""How far a transfer is: bytes counted over all of its threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError
from threading import Event, Lock

from attrs import define, field

TransferProgress = Callable[[int, int], None]
"""Called with the bytes done and the total bytes on each change; from any thread, one call at a time."""


@define
class Meter:
    """Counts bytes over all threads."""

    report: TransferProgress | None
    total: int = 0
    done: int = 0
    sent: int = 0
    _lock: Lock = field(factory=Lock)
    _stopped: Event = field(factory=Event)

    def stop(self) -> None:
        """Prevents further pieces from starting."""
        self._stopped.set()

    def go_on(self) -> None:
        """Called before each piece; raises after ``stop``."""
        if self._stopped.is_set():
            raise CancelledError

    def expect(self, size: int) -> None:
        """Adds to the total; a negative size takes back what was expected."""
        with self._lock:
            self.total += size

    def add(self, size: int, *, sent: bool = True) -> None:
        """Counts bytes that are done; ``sent`` is False for those that needed no request."""
        with self._lock:
            self.done += size
            self.sent += size if sent else 0
            if self.report is not None:
                self.report(self.done, self.total)
