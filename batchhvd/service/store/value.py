"""What the typed values of records have in common."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

from batchhvd.service.store.records import Document, Record, merged


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
