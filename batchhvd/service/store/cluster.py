"""What the service keeps about a cluster, as a value; each change returns the next value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from attrs import frozen

from batchhvd.service.store.documents import ClusterProperties, ErrorDocument, ScaleSettings
from batchhvd.service.store.records import Document, Record
from batchhvd.service.store.value import RecordValue
from batchhvd.wire.facts.states import AllocationState, ProvisioningState, VmPriority


class PrivateClusterFields(TypedDict):
    """What a new cluster's record holds besides its document."""

    names: list[str]
    leaving: list[str]
    preparing: dict[str, str]
    unusable: dict[str, str]
    keys: dict[str, str]
    secrets: dict[str, str]
    login: Document
    asked: Document
    warnings: list[str]


@frozen
class StoredCluster(RecordValue):
    """A cluster as the service keeps it.

    Attributes:
        scale: how many nodes were asked for.
        allocation: ``"steady"`` or ``"resizing"``.
        changed: since when it is in that state, as the wire writes it.
        errors: what is wrong with it, None when nothing ever has been.
        counts: how many of its nodes are in each state (``nodeStateCounts``).
        names: all nodes that it has, in the order in which they came.
        target: how many it should have, None before the first look.
        preparing: node -> handle of its setup task, "" when none has begun.
        leaving: the nodes that go as soon as they are free.
        unusable: node -> why its setup failed.
        again: those of the unusable ones that are set up again from time to time: the command itself did not fail.
        broken: node -> which machine of the engine takes no tasks, and why; that many fewer nodes can be given.
        idle: node -> since when it is idle, in seconds since 1970.
        next: the number of the next node.
    """

    scale: ScaleSettings
    allocation: str
    changed: str
    errors: tuple[ErrorDocument, ...] | None
    counts: Mapping[str, int]
    names: tuple[str, ...]
    target: int | None
    preparing: Mapping[str, str]
    leaving: tuple[str, ...]
    unusable: Mapping[str, str]
    again: tuple[str, ...]
    broken: Mapping[str, str]
    idle: Mapping[str, float]
    next: int

    @classmethod
    def of(cls, record: Record) -> StoredCluster:
        """Returns the cluster that a record holds."""
        properties: ClusterProperties = record.document["properties"]
        private = record.private
        return cls(
            record,
            properties["scaleSettings"],
            properties["allocationState"],
            properties.get("allocationStateTransitionTime", ""),
            tuple(properties["errors"]) if "errors" in properties else None,
            properties["nodeStateCounts"],
            tuple(private["names"]),
            private.get("target"),
            private.get("preparing", {}),
            tuple(private.get("leaving", ())),
            private.get("unusable", {}),
            tuple(private.get("again", ())),
            private.get("broken", {}),
            private.get("idle", {}),
            private.get("next", 1),
        )

    def to_record(self) -> Record:
        """Returns the record with what has changed written into it; the order of its fields stays."""
        shown = {
            "scaleSettings": self.scale,
            "allocationState": self.allocation,
            "allocationStateTransitionTime": self.changed,
            "currentNodeCount": len(self.names),
            "nodeStateCounts": dict(self.counts),
        }
        kept = {
            "names": list(self.names),
            "leaving": list(self.leaving),
            "preparing": dict(self.preparing),
            "unusable": dict(self.unusable),
            "again": list(self.again),
            "broken": dict(self.broken),
            "idle": dict(self.idle),
            "target": self.target,
            "next": self.next,
        }
        blocks = {} if self.errors is None else {"errors": list(self.errors)}
        return self._record(shown, kept, **blocks)

    @property
    def properties(self) -> ClusterProperties:
        """The document's ``properties``, as they were read."""
        properties: ClusterProperties = self.record.document["properties"]
        return properties

    @property
    def most_nodes(self) -> int:
        """How many nodes it may come to have."""
        if "autoScale" in self.scale:
            return self.scale["autoScale"]["maximumNodeCount"]
        return self.scale["manual"]["targetNodeCount"]

    @property
    def provisioning(self) -> str:
        """How far its creation or deletion is."""
        return self.properties["provisioningState"]

    @property
    def is_deleting(self) -> bool:
        """Whether it is being deleted."""
        return self.provisioning == ProvisioningState.DELETING

    @property
    def is_steady(self) -> bool:
        """Whether it has the nodes that it should have."""
        return self.allocation == AllocationState.STEADY

    @property
    def is_low_priority(self) -> bool:
        """Whether its nodes may be evicted."""
        return self.properties.get("vmPriority") == VmPriority.LOW_PRIORITY
