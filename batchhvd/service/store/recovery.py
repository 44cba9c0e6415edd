"""Checks the databases of a root, and recovers what can be read from a damaged one, which stays beside the new one."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from attrs import define, field

from batchhvd.service.store import trouble
from batchhvd.service.store.records import Row, Store

_QUICK = 32 << 20  # bytes of a database that is soon checked as a whole
_NAMED = 20  # lost resources that are named; the rest is counted
# Each finds keys by another way through the file: what one misses behind a damaged page, another may still reach.
_WAYS = (
    "SELECT key FROM resource NOT INDEXED ORDER BY key",
    "SELECT key FROM resource NOT INDEXED ORDER BY key DESC",
    "SELECT key FROM resource INDEXED BY resource_parent ORDER BY type, parent, number",
    "SELECT key FROM resource INDEXED BY resource_parent ORDER BY type DESC, parent DESC, number DESC",
    "SELECT key FROM resource INDEXED BY resource_name ORDER BY type",
)
_ROW = "SELECT id, type, parent, document, private, number FROM resource WHERE key = ?"


def databases(root: Path) -> tuple[Path, ...]:
    """Returns the paths of a root's databases: resources, and what the services for files and blobs note."""
    notes = (root / place / ".files" / "sidecar.sqlite" for place in ("shares", "containers"))
    return root / "state.sqlite", *notes


def check(root: Path) -> None:
    """Checks the databases of a root as far as that takes a moment.

    Raises:
        OSError: one is damaged; the message names it and the command that recovers it.
    """
    for path in databases(root):
        why = damage(path, most=_QUICK)
        if why:
            raise OSError(trouble.damaged(path, root, why))


def damage(path: Path, most: int | None = None) -> str:
    """Returns what is wrong with a database, "" if nothing is or there is none.

    Args:
        path: the file.
        most: the size in bytes above which only the beginning is looked at; None for all of any file.
    """
    try:
        if not path.exists() or path.stat().st_size == 0:
            return ""
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if most is None or path.stat().st_size <= most:
                found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
                return "" if found == "ok" else found.splitlines()[-1]
    except sqlite3.DatabaseError as error:
        return str(error) if trouble.is_damage(error) else ""
    return ""


def recover(root: Path) -> list[str]:
    """Puts damaged databases aside, and returns what was done, one sentence each."""
    state, *notes = databases(root)
    told = []
    if damage(state):
        told += _Recovery(_aside(state)).into(state)
    for sidecar in filter(damage, notes):
        aside = _aside(sidecar)
        told.append(
            f"{aside} is the damaged one. Metadata, content types and quotas of files are lost; all files stay."
        )
    return told or [f"the databases in {root} are not damaged; nothing had to be recovered"]


def _aside(path: Path) -> Path:
    aside = path.with_name(f"{path.stem}-damaged-{time.strftime('%Y%m%dT%H%M%S')}.sqlite")
    os.rename(path, aside)
    for ending in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{ending}", f"{aside}{ending}")
    return aside


@define
class _Recovery:
    """Reads what can be read from a damaged database."""

    aside: Path
    rows: list[Row] = field(factory=list)
    lost: list[str] = field(factory=list)
    whole: bool = False  # whether some way led through the whole file, so that all keys are known

    def into(self, path: Path) -> list[str]:
        """Writes all that can be read into a new database, and returns what was done."""
        work = path.with_name(
            f".{self.aside.name}.work"
        )  # what SQLite repairs while it reads stays out of the original
        try:
            for ending in ("", "-wal"):
                if Path(f"{self.aside}{ending}").exists():
                    shutil.copyfile(f"{self.aside}{ending}", f"{work}{ending}")
            with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(work)) as old:
                self._read(old)
        finally:
            for ending in ("", "-wal", "-shm"):
                Path(f"{work}{ending}").unlink(missing_ok=True)
        self._write(path)
        return list(self._told())

    def _read(self, old: sqlite3.Connection) -> None:
        keys = {key for way in _WAYS for key in self._keys(old, way)}
        for key in sorted(keys):
            try:
                row = old.execute(_ROW, (key,)).fetchone()
                json.loads(row[3])
                self.rows.append(row)
            except (sqlite3.DatabaseError, TypeError, ValueError):
                self.lost.append(str(key))

    def _keys(self, old: sqlite3.Connection, way: str) -> Iterator[str]:
        with suppress(sqlite3.DatabaseError, UnicodeError):
            for (key,) in old.execute(way):
                if isinstance(key, str):
                    yield key
            self.whole = True

    def _write(self, path: Path) -> None:
        store, taken = Store(path), set()
        last = max((row[5] for row in self.rows if isinstance(row[5], int)), default=0)
        with store.transaction() as connection:
            for id, type, parent, document, private, number in self.rows:
                last, number = (
                    (last + 1, last + 1) if number in taken or not isinstance(number, int) else (last, number)
                )
                taken.add(number)
                values = (str(id).lower(), id, type, parent, document, private or "{}", number)
                connection.execute("INSERT OR REPLACE INTO resource VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            connection.execute("INSERT OR REPLACE INTO counter VALUES ('resource', ?)", (last,))
        store.close()

    def _told(self) -> Iterable[str]:
        yield f"{self.aside} is the damaged database; {len(self.rows)} resources were recovered from it."
        if self.lost:
            more = f" and {len(self.lost) - _NAMED} more" if len(self.lost) > _NAMED else ""
            yield f"{len(self.lost)} resources are lost: {', '.join(self.lost[:_NAMED])}{more}."
        if not self.whole:
            yield "More resources may be lost, whose names cannot be read; shares and the folders of jobs stay."
