"""Blocks: pieces of a blob that wait for the list that makes a blob of them, and the list of each blob made so.

    <root>/.files/blocks/<account>/<container>/<digest of the blob's name>/<hex of the block's id>
    <root>/.files/blocks/<account>/<container>/<digest of the blob's name>.json

They lie beside the containers: nobody who mounts one sees them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from batchhvd.service.storage.disk.disk import Staged
from batchhvd.service.storage.protocol.request import Target

_KEPT = 7 * 24 * 3600  # seconds that a block waits for its list, as in Azure

Listed = list[tuple[str, int]]
"""Ids of blocks, in hexadecimal digits, and their sizes in bytes."""


class Blocks:
    """The blocks of all containers.

    Args:
        folder: where they lie; on the file system of the containers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, target: Target, block: str, staged: Staged) -> None:
        """Keeps a block in place of an earlier one of its id."""
        place = self._of(target)
        place.mkdir(parents=True, exist_ok=True)
        os.rename(staged.path, place / block)

    def path(self, target: Target, block: str) -> Path:
        """Returns where a block lies, if it was put."""
        return self._of(target) / block

    def waiting(self, target: Target) -> Listed:
        """Returns the blocks of a blob that wait for their list, in the order of their ids."""
        try:
            with os.scandir(self._of(target)) as entries:
                return sorted((each.name, each.stat().st_size) for each in entries)
        except FileNotFoundError:
            return []

    def keep_list(self, target: Target, about: os.stat_result, blocks: Listed) -> None:
        """Keeps the list of a blob, good for as long as nobody writes into its file."""
        place = self._list(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_suffix(f".{os.getpid()}.{about.st_ino}")
        part.write_text(json.dumps({"of": _origin(about), "blocks": blocks}), encoding="ascii")
        os.replace(part, place)

    def listed(self, target: Target, about: os.stat_result) -> Listed:
        """Returns the blocks that a blob was made of; none if it was written in another way, or since then."""
        try:
            kept = json.loads(self._list(target).read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return []
        return [(block, size) for block, size in kept["blocks"]] if kept["of"] == _origin(about) else []

    def forget(self, target: Target) -> None:
        """Drops the blocks of a blob that wait for their list, and its list."""
        with suppress(FileNotFoundError):
            self._list(target).unlink()
        self.drop_waiting(target)

    def drop_waiting(self, target: Target) -> None:
        """Drops the blocks of a blob that wait for their list."""
        shutil.rmtree(self._of(target), ignore_errors=True)

    def forget_all(self, account: str, container: str = "") -> None:
        """Drops the blocks and lists of a container or of an account."""
        shutil.rmtree(self._folder / account / container, ignore_errors=True)

    def expire(self) -> None:
        """Drops the blocks that have waited for too long."""
        for path in self._folder.glob("*/*/*/*"):
            with suppress(OSError):
                if path.stat().st_mtime < time.time() - _KEPT:
                    path.unlink()
                    path.parent.rmdir()

    def _of(self, target: Target) -> Path:
        digest = hashlib.sha256(os.fsencode(target.path)).hexdigest()
        return self._folder / target.account / target.share / digest

    def _list(self, target: Target) -> Path:
        return self._of(target).with_suffix(".json")


def offsets(blocks: Iterable[tuple[str, int]]) -> dict[str, tuple[int, int]]:
    """Returns where in its blob each block lies: first byte and size; of two with one id, the first."""
    found: dict[str, tuple[int, int]] = {}
    position = 0
    for block, size in blocks:
        found.setdefault(block, (position, size))
        position += size
    return found


def _origin(about: os.stat_result) -> list[int]:
    """Returns the numbers that change whenever a file's content may have changed."""
    return [about.st_ino, about.st_mtime_ns, about.st_size]
