"""What the file service keeps about files beside the shares: metadata, content headers, quotas.

Shares hold nothing but what jobs and users put there. So this lives in one SQLite file; each entry names the inode that
it was written for, and counts only while that inode has that path: a file that a job put in another's place does not
inherit what was said about the old one.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from batchhvd.service.storage.disk import stretches
from batchhvd.service.storage.disk.stretches import Stretch


class LeaseFacts(TypedDict, total=False):
    """A lease of a share or file.

    Attributes:
        id: its id.
        seconds: how long it lasts, -1 for ever.
        ends: when it ends or is broken, in seconds since 1970; None for never.
        broken: whether it was broken.
    """

    id: str
    seconds: int
    ends: float | None
    broken: bool


class FrozenFacts(TypedDict, total=False):
    """What a file in a snapshot was, where the snapshot's own file cannot say it.

    Attributes:
        etag: its tag.
        id: its inode.
        created: its time of creation in nanoseconds since 1970.
        changed: its time of last change.
        origin: inode, times of last write and change, and size of the file that was copied.
        settled: whether the file had not changed since well before it was copied, so that equal numbers mean that it is
            the same still.
    """

    etag: str
    id: int
    created: int
    changed: int
    origin: list[int]
    settled: bool


class Facts(TypedDict, total=False):
    """What is noted of a share, directory or file.

    Attributes:
        metadata: by name.
        content: the content's headers, as reads show them.
        created: when a client says that it was made, in nanoseconds since 1970.
        changed: when a client says that it was changed, and the system's time of change for which that holds.
        attributes: of a file or directory, beyond what it is, such as ``"ReadOnly|Hidden"``.
        permission: the key of its permission.
        copy: the headers that tell of the last copy into it.
        lease: the lease on it.
        quota: of a share, in GiB.
        tier: of a share.
        tiered: when the tier was set, in seconds since 1970.
        offer: of a share, what else it has of what its account offers, by header.
        policies: of a share, the stored access policies: id, start, end, permission.
        limit: of a share, the bytes that its files may have in all, while a fire drill goes on.
        service: of an account, the settings that clients set.
        deleted: of a deleted share, when, in seconds since 1970.
        kept: of a deleted share, for how many days it can be restored.
        frozen: of a file in a snapshot.
        written: of a blob, time of last write and size of the file that its MD5 is of.
    """

    metadata: dict[str, str]
    content: dict[str, str]
    created: int | None
    changed: list[int] | None
    attributes: str
    permission: str
    copy: dict[str, str]
    lease: LeaseFacts | None
    quota: int | None
    tier: str
    tiered: float
    offer: dict[str, str]
    policies: list[dict[str, str]]
    limit: int | None
    service: dict[str, Any]
    deleted: float
    kept: int
    frozen: FrozenFacts
    written: list[int]


_SCHEMA = """CREATE TABLE IF NOT EXISTS entry (
    share TEXT NOT NULL, path TEXT NOT NULL, inode INTEGER NOT NULL, facts TEXT NOT NULL, PRIMARY KEY (share, path)
) WITHOUT ROWID"""
_PERMISSIONS = """CREATE TABLE IF NOT EXISTS permission (
    share TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (share, key)
) WITHOUT ROWID"""

_TOUCHED = """CREATE TABLE IF NOT EXISTS touched (
    share TEXT NOT NULL, inode INTEGER NOT NULL, era TEXT NOT NULL, stretches TEXT NOT NULL,
    PRIMARY KEY (share, inode, era)
) WITHOUT ROWID"""

Rows = Mapping[str, tuple[int, Facts]]
"""Inode and facts by path."""


class Sidecar:
    """Facts by share (``account/share``) and path (``""`` for the share itself); safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing, a power cut the last moments
        self._connection.execute(_SCHEMA)
        self._connection.execute(_PERMISSIONS)
        self._connection.execute(_TOUCHED)

    def get(self, share: str, path: str, inode: int) -> Facts:
        """Returns what was noted for the entry that has this inode now; empty if nothing was."""
        row = self._run("SELECT inode, facts FROM entry WHERE share = ? AND path = ?", share, _text(path))
        return json.loads(row[1]) if row and row[0] == _signed(inode) else {}

    def put(self, share: str, path: str, inode: int, facts: Facts) -> None:
        """Notes facts in place of those noted before; empty ones are not kept."""
        kept = _kept(facts)
        if not kept:
            return self.forget(share, path)
        row = (share, _text(path), _signed(inode), json.dumps(kept))
        self._run("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)", *row)
        return None

    def put_all(self, share: str, rows: Iterable[tuple[str, int, Facts]]) -> None:
        """Notes facts of many entries, of all or of none: path, inode, facts."""
        found = [(share, _text(path), _signed(inode), json.dumps(_kept(facts))) for path, inode, facts in rows]
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)", found)

    def below(self, share: str, path: str = "") -> dict[str, tuple[int, Facts]]:
        """Returns what is noted of all entries below a path, or of a whole share, with the inodes it was noted for."""
        start = f"{_text(path)}/" if path else ""
        statement = "SELECT path, inode, facts FROM entry WHERE share = ? AND path >= ? AND path < ?"
        with self._lock:
            rows = self._connection.execute(statement, (share, start, f"{start[:-1]}0" if start else "\U0010ffff"))
            return {path: (inode, json.loads(facts)) for path, inode, facts in rows.fetchall()}

    def children(self, share: str, path: str) -> dict[str, tuple[int, Facts]]:
        """Returns what is noted of all that is directly in a directory, with the inodes it was noted for."""
        start = f"{_text(path)}/" if path else ""
        statement = (
            "SELECT path, inode, facts FROM entry WHERE share = ? AND path > ? AND path < ?"
            " AND instr(substr(path, ?), '/') = 0"
        )
        end = f"{start[:-1]}0" if start else "\U0010ffff"
        with self._lock:
            rows = self._connection.execute(statement, (share, start, end, len(start) + 1))
            return {path: (inode, json.loads(facts)) for path, inode, facts in rows.fetchall()}

    def shares(self, start: str) -> list[str]:
        """Returns the shares whose name begins so and of which anything is noted."""
        statement = "SELECT DISTINCT share FROM entry WHERE share >= ? AND share < ?"
        with self._lock:
            return [share for (share,) in self._connection.execute(statement, (start, start + "\U0010ffff"))]

    def forget(self, share: str, path: str) -> None:
        """Drops what is known of one entry; looking first is cheaper than a write that changes nothing."""
        if self._run("SELECT 1 FROM entry WHERE share = ? AND path = ?", share, _text(path)):
            self._run("DELETE FROM entry WHERE share = ? AND path = ?", share, _text(path))

    def forget_share(self, share: str) -> None:
        """Drops what is known of a share and of all that was in it."""
        self._run("DELETE FROM entry WHERE share = ?", share)
        self._run("DELETE FROM permission WHERE share = ?", share)
        self._run("DELETE FROM touched WHERE share = ?", share)

    def forget_account(self, account: str) -> None:
        """Drops what is known of an account and of all its shares."""
        for table in _TABLES:
            self._run(f"DELETE FROM {table} WHERE share >= ? AND share < ?", f"{account}/", f"{account}0")

    def rename_all(self, old: str, new: str) -> None:
        """Gives all that is known of a share and of its snapshots to one of another name, of which nothing is known."""
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                self._connection.execute(f"DELETE FROM {table} {_ALL}", (new, f"{new}@", f"{new}A"))
                statement = f"UPDATE {table} SET share = ? || substr(share, ?) {_ALL}"
                self._connection.execute(statement, (new, len(old) + 1, old, f"{old}@", f"{old}A"))

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

    def permission(self, share: str, key: str) -> str | None:
        """Returns a share's permission, or None if it has none with this key."""
        row = self._run("SELECT text FROM permission WHERE share = ? AND key = ?", share, key)
        return row[0] if row else None

    def keep_permission(self, share: str, key: str, text: str) -> None:
        """Keeps a permission of a share under its key."""
        self._run("INSERT OR REPLACE INTO permission VALUES (?, ?, ?)", share, key, text)

    def copy_permissions(self, share: str, to: str) -> None:
        """Keeps a share's permissions with its snapshot too."""
        self._run("INSERT OR REPLACE INTO permission SELECT ?, key, text FROM permission WHERE share = ?", to, share)

    def touch(self, share: str, inode: int, era: str, stretch: Stretch) -> None:
        """Notes that a stretch of a file was written or cleared in the time after a snapshot, its era."""
        key = (share, _signed(inode), era)
        with self._lock:
            row = self._connection.execute(f"SELECT stretches FROM touched {_ERA}", key).fetchone()
            before = [tuple(each) for each in json.loads(row[0])] if row else []
            after = stretches.joined(before, stretch)
            if after != before:
                self._connection.execute(
                    "INSERT OR REPLACE INTO touched VALUES (?, ?, ?, ?)", (*key, json.dumps(after))
                )

    def touched(self, share: str, inode: int, since: str, until: str) -> list[Stretch]:
        """Returns the stretches of a file that were written or cleared from one era on, and before another one."""
        statement = "SELECT stretches FROM touched WHERE share = ? AND inode = ? AND era >= ? AND era < ?"
        with self._lock:
            rows = self._connection.execute(statement, (share, _signed(inode), since, until)).fetchall()
        return stretches.united((first, last) for (text,) in rows for first, last in json.loads(text))

    def forget_touched(self, share: str, before: str) -> None:
        """Drops what was noted of writes in the eras before one."""
        self._run("DELETE FROM touched WHERE share = ? AND era < ?", share, before)

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def _run(self, statement: str, *values: object) -> Any:
        with self._lock:
            return self._connection.execute(statement, values).fetchone()


_TABLES = ("entry", "permission", "touched")
_ERA = "WHERE share = ? AND inode = ? AND era = ?"
_ALL = "WHERE (share = ? OR (share >= ? AND share < ?))"  # "A" follows "@", after which a snapshot's time stands
_BELOW = "WHERE share = ? AND (path = ? OR (path >= ? AND path < ?))"  # "0" follows "/"


def stored(path: str) -> str:
    """Returns a path as it is stored, and as ``below`` returns it."""
    return _text(path)


def same_inode(noted: int, inode: int) -> bool:
    """Says whether facts that ``below`` returned were noted for this inode."""
    return noted == _signed(inode)


def _kept(facts: Facts) -> dict[str, object]:
    return {name: value for name, value in facts.items() if value not in ({}, None, "", [])}


def _text(path: str) -> str:
    """Makes a path storable even if it is not UTF-8; jobs may create such names."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _signed(inode: int) -> int:
    """Fits an unsigned 64-bit inode number into SQLite's integer."""
    return inode - (1 << 64) if inode >= 1 << 63 else inode
