"""Removes directories: their names are free at once, the disk space as soon as possible.

One thread removes what was discarded, one thing after another. It does not keep the service from ending: what is left
then, the next start removes.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

_NAME, _LEFT = "trash", ".deleted-"


def discard(root: Path, path: Path) -> None:
    """Moves a directory out of the way and removes it in the background; nothing happens when there is none."""
    with suppress(FileNotFoundError):
        moved = _moved(root, path)
        _BIN.take(lambda: [moved])


def _moved(root: Path, path: Path) -> Path:
    place = root / _NAME
    place.mkdir(exist_ok=True)
    try:
        return path.rename(place / uuid.uuid4().hex)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    return path.rename(path.with_name(f"{_LEFT}{uuid.uuid4().hex}"))  # it is on a file system of its own


def empty(root: Path) -> None:
    """Removes in the background what an earlier run left: in the trash, and of deletions that a kill interrupted."""
    _BIN.take(lambda: _leftovers(root))


def is_empty() -> bool:
    """Says whether all that was discarded is gone."""
    return _BIN.is_empty


class _Bin:
    """Removes what it is given in a thread of its own, which begins with the first thing."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], Iterable[Path]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to remove."""
        return self._waiting == 0

    def take(self, folders: Callable[[], Iterable[Path]]) -> None:
        """Takes directories to remove; they are found in the background too."""
        with self._lock:
            self._waiting += 1
            self._queue.put(folders)
            if self._waiting == 1:
                threading.Thread(target=self._work, name=_NAME, daemon=True).start()

    def _work(self) -> None:
        """Removes until nothing is left; a thread that waited for more would have to be ended."""
        while True:
            for folder in self._queue.get()():
                began = time.monotonic()
                shutil.rmtree(folder, ignore_errors=True)
                if self._waiting > 1:  # so many that requests would notice
                    time.sleep(time.monotonic() - began)
            with self._lock:
                self._waiting -= 1
                if not self._waiting:
                    return


_BIN = _Bin()


def _leftovers(root: Path) -> Iterator[Path]:
    for place, mark in ((_NAME, ""), ("tasks", _LEFT), ("shares", _LEFT), ("containers", _LEFT)):
        try:
            names = os.listdir(root / place)
        except FileNotFoundError:
            continue
        yield from (root / place / name for name in names if name.startswith(mark))
