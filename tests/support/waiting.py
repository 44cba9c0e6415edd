"""Waiting for what comes by itself, and for processes to go; and waiting once where many tests ask for the same."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

Found = TypeVar("Found")
Given = ParamSpec("Given")


def once(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """Keeps what a function returns for the same arguments, and what it raises.

    ``functools.cache`` keeps no exception: each test that asks again would wait again until the time is over.
    """
    known: dict[object, tuple[Found | None, BaseException | None]] = {}

    def ask(*given: Given.args, **named: Given.kwargs) -> Found:
        asked = (given, tuple(sorted(named.items())))
        if asked not in known:
            try:
                known[asked] = (function(*given, **named), None)
            except BaseException as raised:  # a skip is one, too
                known[asked] = (None, raised)
        found, error = known[asked]
        if error:
            raise error
        return found  # type: ignore[return-value]  # None only beside an error, or as the function returned it

    return ask


def until(condition: Callable[[], Found], seconds: float = 30.0, pause: float = 0.02) -> Found:
    """Returns what a condition returns as soon as it is true; fails the test if it does not become so in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause)
    return found


def within(seconds: float, took: Callable[[int], float]) -> bool:
    """Says whether one of three tries takes no longer than that: other tests may have the cores for a while."""
    load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    return any(took(number) < seconds * load for number in range(3))


def processes_with(word: str) -> list[int]:
    """Returns the processes of this machine, in whatever namespace, whose command line has a word."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and word.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def gone(word: str, seconds: float = 10) -> bool:
    """Waits until no process has a word on its command line, and says whether that happened in time."""
    deadline = time.monotonic() + seconds
    while processes_with(word) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not processes_with(word)
