"""What the file service keeps about files beside the shares: metadata, content headers, quotas.

Shares hold nothing but what jobs and users put there. So this lives in one SQLite file; each entry names the inode that
it was written for, and counts only while that inode has that path: a file that a job put in another's place does not
inherit what was said about the old one.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path
from typing import Any, TypedDict


class Facts(TypedDict, total=False):
    """What is noted of a share, directory or file.

    Attributes:
        metadata: by name.
        content: the content's headers, as reads show them.
        created: when a client says that it was made, in nanoseconds since 1970.
        copy: the headers that tell of the last copy into it.
        quota: of a share, in GiB.
        limit: of a share, the bytes that its files may have in all, while a fire drill goes on.
    """

    metadata: dict[str, str]
    content: dict[str, str]
    created: int | None
    copy: dict[str, str]
    quota: int | None
    limit: int | None


_SCHEMA = """CREATE TABLE IF NOT EXISTS entry (
    share TEXT NOT NULL, path TEXT NOT NULL, inode INTEGER NOT NULL, facts TEXT NOT NULL, PRIMARY KEY (share, path)
) WITHOUT ROWID"""


class Sidecar:
    """Facts by share (``account/share``) and path (``""`` for the share itself); safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing, a power cut the last moments
        self._connection.execute(_SCHEMA)

    def get(self, share: str, path: str, inode: int) -> Facts:
        """Returns what was noted for the entry that has this inode now; empty if nothing was."""
        row = self._run("SELECT inode, facts FROM entry WHERE share = ? AND path = ?", share, _text(path))
        return json.loads(row[1]) if row and row[0] == _signed(inode) else {}

    def put(self, share: str, path: str, inode: int, facts: Facts) -> None:
        """Notes facts in place of those noted before; empty ones are not kept."""
        kept = {name: value for name, value in facts.items() if value not in ({}, None, "")}
        if not kept:
            return self.forget(share, path)
        row = (share, _text(path), _signed(inode), json.dumps(kept))
        self._run("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)", *row)
        return None

    def forget(self, share: str, path: str) -> None:
        """Drops what is known of one entry; looking first is cheaper than a write that changes nothing."""
        if self._run("SELECT 1 FROM entry WHERE share = ? AND path = ?", share, _text(path)):
            self._run("DELETE FROM entry WHERE share = ? AND path = ?", share, _text(path))

    def forget_share(self, share: str) -> None:
        """Drops what is known of a share and of all that was in it."""
        self._run("DELETE FROM entry WHERE share = ?", share)

    def move(self, share: str, old: str, new: str) -> None:
        """Moves what is known of an entry, and of all below it, to another path."""
        old, new = _text(old), _text(new)
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(f"DELETE FROM entry {_BELOW}", (share, new, new + "/", new + "0"))
            self._connection.execute(
                f"UPDATE entry SET path = ? || substr(path, ?) {_BELOW}",
                (new, len(old) + 1, share, old, old + "/", old + "0"),
            )

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def _run(self, statement: str, *values: object) -> Any:
        with self._lock:
            return self._connection.execute(statement, values).fetchone()


_BELOW = "WHERE share = ? AND (path = ? OR (path >= ? AND path < ?))"  # "0" follows "/"


def _text(path: str) -> str:
    """Makes a path storable even if it is not UTF-8; jobs may create such names."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _signed(inode: int) -> int:
    """Fits an unsigned 64-bit inode number into SQLite's integer."""
    return inode - (1 << 64) if inode >= 1 << 63 else inode
