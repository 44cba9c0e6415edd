"""Removes directories: their names are free at once, the disk space as soon as possible."""

from __future__ import annotations

import shutil
import threading
import uuid
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
    """Removes in the background what an earlier run left in the trash."""
    for left in (root / "trash").glob("*"):
        threading.Thread(target=shutil.rmtree, args=(left, True), name="trash").start()
