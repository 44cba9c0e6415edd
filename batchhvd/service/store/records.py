"""The service's only mutable state: one SQLite file, resources by id.

A resource has two documents: ``document`` is what its GET shows, ``private`` what it never shows (keys, secrets, the
engine's handle, queue numbers). Ids are compared without regard to case and keep the case of their creation.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from attrs import frozen

from batchhvd.wire.facts.states import ENDED, JobState, ProvisioningState

log = logging.getLogger("batchhvd.service.store.records")
Document = dict[str, Any]
_list = list  # the class below has a method of this name
_ACTIVE = tuple(state.value for state in JobState if state not in ENDED)
_ACCOUNT = "CASE WHEN json_valid(private) THEN json_extract(private, '$.account') END"
# Batch AI and Resource Manager write the same state in two ways. SQLite uses an index on an expression only for the
# same expression.
_DELETING = (ProvisioningState.DELETING.value, ProvisioningState.DELETING.value.capitalize())
DOOMED = "coalesce(json_extract(document, '$.properties.provisioningState') IN ('{}', '{}'), 0)".format(*_DELETING)
"""The SQL expression that says whether a resource is being deleted."""

# Only jobs have this state; a condition on the type would let SQLite choose the index of types, and read all jobs.
ACTIVE = f"coalesce(json_extract(document, '$.properties.executionState') IN {_ACTIVE}, 0)"
"""The SQL expression that says whether a resource is a job that has not ended."""

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS resource (
    key TEXT PRIMARY KEY, id TEXT NOT NULL, type TEXT NOT NULL, parent TEXT NOT NULL,
    document TEXT NOT NULL, private TEXT NOT NULL, number INTEGER NOT NULL UNIQUE
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS resource_parent ON resource (type, parent, number);
CREATE INDEX IF NOT EXISTS resource_type ON resource (type, number);
CREATE INDEX IF NOT EXISTS resource_active ON resource (number) WHERE {ACTIVE};
CREATE INDEX IF NOT EXISTS resource_doomed ON resource (key) WHERE {DOOMED};
CREATE INDEX IF NOT EXISTS resource_name ON resource (type, json_extract(document, '$.name'));
CREATE INDEX IF NOT EXISTS resource_account ON resource ({_ACCOUNT}) WHERE type = 'fileServers';
DROP INDEX IF EXISTS resource_execution;
DROP INDEX IF EXISTS resource_provisioning;
CREATE TABLE IF NOT EXISTS counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""


@frozen
class Record:
    """One resource as stored.

    Attributes:
        id: the resource's id, in the case it was made with.
        type: such as ``"workspaces"``, ``"jobs"``, ``"groups"``, ``"storageAccounts"``, ``"operations"``.
        parent: the lower-cased id of the resource it lives in, "" for the top.
        document: what a GET shows.
        private: what no answer shows.
        number: grows with each resource; the order of creation, and so of the queue.
    """

    id: str
    type: str
    parent: str
    document: Document
    private: Document
    number: int


Row = tuple[str, str, str, str, str, int]
"""A resource as it lies in the file: id, type, parent, document, private, number."""

StoredText = tuple[int, str]
_Values = tuple[object, ...]
V = TypeVar("V", bound="Value")


class Value(Protocol):
    """A typed value of a record."""

    @property
    def id(self) -> str:
        """The resource's id."""

    @classmethod
    def of(cls: type[V], record: Record) -> V:
        """Returns the value that a record holds."""

    def to_record(self) -> Record:
        """Returns the record that holds the value."""


class Store:
    """Resources in one SQLite file; safe to use from several threads, durable at each return."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        self._local = threading.local()
        self.commits = 0  # grows with each change; this process is the only one that makes any
        # SQLite lets a thread that waits for another one sleep for up to 100 ms; a lock wakes it at once.
        self._turn = threading.Lock()
        with self.transaction() as connection:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                connection.execute(statement)

    def get(self, id: str) -> Record | None:
        """Returns the resource with this id, or None."""
        row = self._connection().execute(f"{_SELECT} WHERE key = ?", (id.lower(),)).fetchone()
        return record_of(row) if row else None

    def document(self, id: str) -> bytes | None:
        """Returns the document of the resource with this id as JSON, as it is stored, or None."""
        row = self._connection().execute("SELECT document FROM resource WHERE key = ?", (id.lower(),)).fetchone()
        return row[0].encode() if row else None

    def list(self, type: str, parent: str | None = None, *, after: int = 0, most: int = -1) -> _list[Record]:
        """Returns the resources of a type in the order of creation.

        Args:
            type: the type.
            parent: the id of their parent, None for all.
            after: leaves out those with numbers up to this one.
            most: how many at most, -1 for all.
        """
        where, values = _chosen(type, parent, after)
        return [record_of(row) for row in self.query(f"{_SELECT} WHERE {where} ORDER BY number LIMIT ?", *values, most)]

    def documents(self, type: str, parent: str | None = None, *, after: int = 0, most: int = -1) -> _list[StoredText]:
        """Returns the documents of resources as JSON, each with its number, chosen as by ``list``."""
        where, values = _chosen(type, parent, after)
        return self.query(f"SELECT number, document FROM resource WHERE {where} ORDER BY number LIMIT ?", *values, most)

    def latest(self, type: str, most: int) -> _list[Record]:
        """Returns the resources of a type that were made last, the last one first."""
        rows = self._connection().execute(f"{_SELECT} WHERE type = ? ORDER BY number DESC LIMIT ?", (type, most))
        return [record_of(row) for row in rows]

    def count(self, type: str) -> int:
        """Returns how many resources of a type there are."""
        return int(self._connection().execute("SELECT count(*) FROM resource WHERE type = ?", (type,)).fetchone()[0])

    def named(self, type: str, name: str) -> _list[Record]:
        """Returns the resources of a type with a name, in whatever resource they are."""
        return self.all_of("type = ? AND json_extract(document, '$.name') = ?", type, name)

    def servers_of(self, account: str) -> _list[Record]:
        """Returns the file servers whose directory is served as a share of an account."""
        return self.all_of(f"type = 'fileServers' AND {_ACCOUNT} = ?", account)

    def under(self, id: str) -> _list[Record]:
        """Returns everything below a resource, at any depth, in the order of creation."""
        prefix = id.lower() + "/"
        rows = self._connection().execute(
            f"{_SELECT} WHERE key >= ? AND key < ? ORDER BY number", (prefix, id.lower() + "0")
        )  # "0" follows "/"
        return [record_of(row) for row in rows]

    def holds_any(self, id: str) -> bool:
        """Says whether anything is below a resource."""
        found = self.query(
            "SELECT 1 FROM resource WHERE key >= ? AND key < ? LIMIT 1", f"{id}/".lower(), f"{id}0".lower()
        )
        return bool(found)

    def active(self) -> _list[Record]:
        """Returns the jobs that have not ended, in the order of creation; ended ones cost no time."""
        return self.all_of(ACTIVE)

    def rows(self, where: str, *values: object) -> _list[Row]:
        """Returns the resources that an SQL expression chooses as they lie in the file, in the order of creation."""
        return self.query(f"{_SELECT} WHERE {where} ORDER BY number", *values)

    def all_of(self, where: str, *values: object) -> _list[Record]:
        """Returns the resources that an SQL expression chooses, in the order of creation."""
        return [record_of(row) for row in self.rows(where, *values)]

    def node_counts(self) -> _list[tuple[str, str, int]]:
        """Returns how many nodes all clusters of a machine size and a priority have: size, priority, number."""
        size, priority, nodes = (
            f"json_extract(document, '$.properties.{name}')" for name in ("vmSize", "vmPriority", "currentNodeCount")
        )
        return self.query(
            f"SELECT {size}, {priority}, sum({nodes}) FROM resource WHERE type = 'clusters' GROUP BY 1, 2"
        )

    def is_active(self) -> bool:
        """Says whether there is a job that has not ended."""
        return bool(self.query(f"SELECT 1 FROM resource WHERE {ACTIVE} LIMIT 1"))

    def users(self) -> _list[tuple[str, str]]:
        """Returns the key of each job that has not ended, and that of its cluster."""
        cluster = "lower(json_extract(document, '$.properties.cluster.id'))"
        return self.query(f"SELECT key, {cluster} FROM resource WHERE {ACTIVE}")

    def put(self, id: str, type: str, parent: str, document: Document, private: Document | None = None) -> Record:
        """Creates a resource, or replaces the documents of an existing one, and returns it."""
        with self.transaction() as connection:
            number = connection.execute("SELECT number FROM resource WHERE key = ?", (id.lower(),)).fetchone()
            record = Record(
                id,
                type,
                parent.lower(),
                document,
                private or {},
                number[0] if number else self._next(connection, "resource"),
            )
            connection.execute(
                "INSERT OR REPLACE INTO resource VALUES (?, ?, ?, ?, ?, ?, ?)",
                (id.lower(), id, type, record.parent, json.dumps(document), json.dumps(record.private), record.number),
            )
        return record

    def add(self, type: str, parent: str, resources: Sequence[tuple[str, Document, Document]]) -> None:
        """Creates resources of one type in one parent, none of which exists: id, document, private part.

        Raises:
            sqlite3.IntegrityError: one exists.
        """
        with self.transaction() as connection:
            first = self._next(connection, "resource", len(resources)) - len(resources) + 1
            rows = [
                (id.lower(), id, type, parent.lower(), json.dumps(document), json.dumps(private), number)
                for number, (id, document, private) in enumerate(resources, first)
            ]
            connection.executemany("INSERT INTO resource VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    def update(self, id: str, change: Callable[[Document, Document], None]) -> Record | None:
        """Lets ``change(document, private)`` alter a resource in place, in one transaction; None when it is gone."""
        with self.transaction() as connection:
            record = self.get(id)
            if record is not None:
                change(record.document, record.private)
                _write(connection, record)
        return record

    def revise(self, seen: V, change: Callable[[V], V]) -> V | None:
        """Changes a resource from the value that is stored now, calling ``change`` once, in one transaction.

        Args:
            seen: the value as it was read some time ago; it says which resource and which type.
            change: returns the next value; when that equals the present one, nothing is written.

        Returns:
            The value as it is now, or None when the resource is gone.
        """
        with self.transaction() as connection:
            record = self.get(seen.id)
            if record is None:
                return None
            before = seen.of(record)
            after = change(before)
            if after != before:
                _write(connection, after.to_record())
        return after

    def delete(self, id: str) -> bool:
        """Removes one resource and says whether it was there; what is below it stays."""
        with self.transaction() as connection:
            return connection.execute("DELETE FROM resource WHERE key = ?", (id.lower(),)).rowcount > 0

    def next(self, name: str) -> int:
        """Returns the next number of a named counter, from 1; never the same twice, also after a restart."""
        with self.transaction() as connection:
            return self._next(connection, name)

    def query(self, statement: str, *values: object) -> _list[tuple[Any, ...]]:
        """Returns the rows that a statement selects."""
        return self._connection().execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Holds the write lock: everything inside becomes visible at once or not at all. May be nested."""
        connection = self._connection()
        if connection.in_transaction:
            yield connection
            return
        with self._turn:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                _roll_back(connection)
                raise
            try:
                connection.execute("COMMIT")
                self.commits += 1
            except sqlite3.Error:  # a full disk: what follows must not join this transaction
                _roll_back(connection)
                raise

    def close(self) -> None:
        """Closes this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            del self._local.connection

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            # FULL: a kill -9 loses nothing either way; FULL also outlives a power cut.
            connection.execute("PRAGMA synchronous = FULL")
            self._local.connection = connection
        return connection

    @staticmethod
    def _next(connection: sqlite3.Connection, name: str, steps: int = 1) -> int:
        row = connection.execute(
            "INSERT INTO counter VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = value + ?2 RETURNING value",
            (name, steps),
        ).fetchone()
        return int(row[0])


def _chosen(type: str, parent: str | None, after: int) -> tuple[str, _Values]:
    """Returns the SQL expression that chooses the resources of a type after a number, and its values."""
    if parent is None:
        return "type = ? AND number > ?", (type, after)
    return "type = ? AND number > ? AND parent = ?", (type, after, parent.lower())


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # SQLite may have done so already
        connection.execute("ROLLBACK")


def merged(base: Mapping[str, Any], values: Mapping[str, object]) -> Document:
    """Returns a document with values put in: None removes an entry, and an empty value adds no new entry."""
    result = dict(base)
    for name, value in values.items():
        if value is None:
            result.pop(name, None)
        elif name in result or value not in ("", [], {}):
            result[name] = value
    return result


def _write(connection: sqlite3.Connection, record: Record) -> None:
    connection.execute(
        "UPDATE resource SET document = ?, private = ? WHERE key = ?",
        (json.dumps(record.document), json.dumps(record.private), record.id.lower()),
    )


_SELECT = "SELECT id, type, parent, document, private, number FROM resource"


def record_of(row: Row) -> Record:
    """Returns the resource of a row."""
    id, type, parent, document, private, number = row
    return Record(id, type, parent, json.loads(document), _private(id, private), number)


def _private(id: str, text: str) -> Document:
    """Returns what no answer shows; nothing if it is damaged, so that the resource can still be ended and removed."""
    try:
        found: Document = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        log.error("the private part of %s is damaged: %s", id, ascii(text)[:80])
        return {}
    return found if isinstance(found, dict) else {}
