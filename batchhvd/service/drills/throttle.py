"""Slows processes down to what a slow disk would let them read and write (Linux)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_STEP = 0.02  # seconds between two measurements


class Throttle:
    """Freezes each of some processes, again and again, for as long as its bytes would have taken; a context manager.

    The kernel counts what a process has moved with read and write calls, to and from any file, pipe or socket. Files
    that are mapped into memory are not counted.
    """

    def __init__(self, pids: Callable[[], Iterable[int]], rate: float) -> None:
        """Creates a throttle.

        Args:
            pids: says which processes; called for each measurement.
            rate: bytes a second that each of them may move.
        """
        self._pids, self._rate = pids, rate
        self._moved: dict[int, int] = {}
        self._busy: dict[int, float] = {}  # until when the slow disk would be at work for a process
        self._frozen: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="throttle", daemon=True)

    def __enter__(self) -> Throttle:
        """Begins; what was moved before does not count."""
        self._moved = {pid: _moved(pid) for pid in self._pids()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends, and lets all go on."""
        self._stop.set()
        self._thread.join()
        for pid in list(self._frozen):
            self._thaw(pid)

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(_STEP):
            now = time.monotonic()
            for pid in self._pids():
                self._look(pid, last, now)
            last = now

    def _look(self, pid: int, last: float, now: float) -> None:
        moved = _moved(pid)
        new = max(0, moved - self._moved.get(pid, 0))  # a number may have been given to another process
        self._moved[pid] = moved
        self._busy[pid] = max(self._busy.get(pid, last), last) + new / self._rate
        if self._busy[pid] > now:
            self._freeze(pid)
        elif pid in self._frozen:
            self._thaw(pid)

    def _freeze(self, pid: int) -> None:
        if pid not in self._frozen and _send(pid, signal.SIGSTOP):
            self._frozen.add(pid)

    def _thaw(self, pid: int) -> None:
        self._frozen.discard(pid)
        _send(pid, signal.SIGCONT)


def _moved(pid: int) -> int:
    """Returns how many bytes a process has read and written since it began, 0 if that is not known (any more)."""
    try:
        lines = Path("/proc", str(pid), "io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    facts = dict(line.split(": ") for line in lines)
    return int(facts["rchar"]) + int(facts["wchar"])


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False  # it ended by itself
    return True
