"""What is being deleted, in slices: no step of a deletion grows with what is deleted.

A deletion marks its target at once. What is below the target is marked and removed later, slice by slice, in descending
order of the keys: that is from the bottom up.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from batchhvd.service.store.records import DOOMED, Store
from batchhvd.wire.facts.states import ENDED

SLICE = 100
"""How many resources one step looks at."""

_LAST = "\U0010ffff"  # follows every key
_ROW = (
    "SELECT key, id, type, parent, json_extract(document, '$.properties.executionState'), "
    f"CASE WHEN json_valid(private) THEN json_extract(private, '$.uuid') END, {DOOMED} FROM resource"
)
_MARK = (
    "UPDATE resource SET document = json_replace(json_set(document, '$.properties.provisioningState', "
    "CASE type WHEN 'groups' THEN 'Deleting' ELSE 'deleting' END), "
    "'$.properties.provisioningStateTransitionTime', ?) WHERE key IN ({})"
)


@frozen
class DoomedRecord:
    """As much of a resource as its removal needs.

    Attributes:
        key, id, type, parent: as of its record.
        state: a job's execution state, else None.
        uuid: the name of a job's folder, None if it has none or its record is damaged.
        marked: whether it says that it is being deleted.
    """

    key: str
    id: str
    type: str
    parent: str
    state: str | None
    uuid: str | None
    marked: bool

    @property
    def has_ended(self) -> bool:
        """Whether it is not a job that may still run."""
        return self.type != "jobs" or self.state in ENDED


def page(store: Store, before: str = "") -> list[DoomedRecord]:
    """Returns the next resources that are marked; the last keys first, ``before`` a key unless it is ""."""
    rows = store.query(f"{_ROW} WHERE {DOOMED} AND key < ? ORDER BY key DESC LIMIT ?", before or _LAST, SLICE)
    return [_record(row) for row in rows]


def below(store: Store, key: str, before: str = "") -> list[DoomedRecord]:
    """Returns the next resources below another one; the last keys first, ``before`` a key unless it is ""."""
    rows = store.query(
        f"{_ROW} WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT ?", key + "/", before or key + "0", SLICE
    )  # "0" follows "/"
    return [_record(row) for row in rows]


def mark(store: Store, keys: Iterable[str], time: str) -> None:
    """Marks resources as being deleted since a time."""
    chosen = list(keys)
    if chosen:
        with store.transaction() as connection:
            connection.execute(_MARK.format(_marks(chosen)), (time, *chosen))


def remove(store: Store, keys: Iterable[str]) -> None:
    """Removes resources, all at once."""
    chosen = list(keys)
    if chosen:
        with store.transaction() as connection:
            connection.execute(f"DELETE FROM resource WHERE key IN ({_marks(chosen)})", chosen)


def _marks(values: list[str]) -> str:
    return ", ".join("?" * len(values))


def _record(row: tuple[str, str, str, str, str | None, str | None, int]) -> DoomedRecord:
    return DoomedRecord(*row[:6], bool(row[6]))
