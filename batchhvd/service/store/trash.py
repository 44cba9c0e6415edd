"""Removes directories: their names are free at once, the disk space as soon as possible."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path


def discard(root: Path, folder: Path) -> None:
    """Moves a directory out of the way and removes it in the background; nothing happens when there is none.

    ``empty`` removes what a killed service left behind.
    """
    place = root / "trash"
    place.mkdir(exist_ok=True)
    try:
        moved = folder.rename(place / uuid.uuid4().hex)
    except FileNotFoundError:
        return
    threading.Thread(target=shutil.rmtree, args=(moved, True), name="trash").start()


def empty(root: Path) -> None:
    """Removes in the background what an earlier run left: in the trash, and of deletions that a kill interrupted."""
    left = [path for place in ("trash/*", "tasks/.deleted-*", "shares/.deleted-*") for path in root.glob(place)]
    if left:
        threading.Thread(target=_remove, args=(left,), name="trash").start()


def _remove(left: Iterable[Path]) -> None:
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
