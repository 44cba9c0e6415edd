"""What the typed values of records have in common, and how many are read again and again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Generic

from attrs import define, evolve, field, frozen

from batchhvd.service.store.records import Document, Record, Row, V, merged, record_of

log = logging.getLogger("batchhvd.service.store.value")


@frozen
class RecordValue:
    """A record's content as a value.

    Attributes:
        record: the record that it was read from, with all that never changes.
    """

    record: Record = field(eq=False, repr=False)

    @property
    def id(self) -> str:
        """The id, in the case it was made with."""
        return self.record.id

    @property
    def key(self) -> str:
        """The id as a key: in lower case."""
        return self.record.id.lower()

    @property
    def name(self) -> str:
        """The name."""
        return str(self.record.document["name"])

    @property
    def keys(self) -> Mapping[str, str]:
        """The keys that its creation gave, by storage account."""
        keys: Mapping[str, str] = self.record.private.get("keys", {})
        return keys

    @property
    def secrets(self) -> Mapping[str, str]:
        """Its secret variables; those of a cluster are its setup task's."""
        secrets: Mapping[str, str] = self.record.private.get("secrets", {})
        return secrets

    @property
    def asked(self) -> Document:
        """What a repeated creation is compared with."""
        asked: Document = self.record.private["asked"]
        return asked

    def _record(self, shown: Mapping[str, object], kept: Mapping[str, object], **blocks: object) -> Record:
        """Returns the record with values put into its properties and its private part; the order of fields stays.

        Args:
            shown: goes into the properties, and ``kept`` into the private part, by the rules of ``merged``.
            kept: see there.
            blocks: goes into the properties even if it is empty.
        """
        document, private = self.record.document, self.record.private
        properties = {**merged(document["properties"], shown), **blocks}
        return evolve(self.record, document={**document, "properties": properties}, private=merged(private, kept))


@define
class ValueTable(Generic[V]):
    """The values of many rows, each made again only when its row has changed.

    Attributes:
        kind: the values' class.
        unreadable: the keys of the rows that could not be read the last time.
    """

    kind: type[V]
    unreadable: set[str] = field(factory=set)
    _kept: dict[str, tuple[Row, V | None]] = field(factory=dict)

    def read(self, rows: Iterable[Row]) -> dict[str, V]:
        """Returns the values of rows by key, without those that cannot be read; an unchanged row gives the same one."""
        self._kept = {row[0].lower(): self._entry(row) for row in rows}
        self.unreadable = {key for key, (_, value) in self._kept.items() if value is None}
        return {key: value for key, (_, value) in self._kept.items() if value is not None}

    def _entry(self, row: Row) -> tuple[Row, V | None]:
        known = self._kept.get(row[0].lower())
        if known is not None and known[0] == row:
            return known
        try:
            return row, self.kind.of(record_of(row))
        except Exception:  # whatever a record holds
            log.exception("%s could not be read; it is tried again when it has changed", row[0])
            return row, None
