"""What the service keeps about a job, as a value; each change returns the next value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from attrs import evolve, frozen

from batchhvd.service.store import recorded
from batchhvd.service.store.documents import ErrorDocument, JobProperties
from batchhvd.service.store.records import Document, Record, merged
from batchhvd.service.store.value import RecordValue
from batchhvd.wire.facts import additions
from batchhvd.wire.facts.job_variables import AFTER, EarlierJob, earlier_jobs
from batchhvd.wire.facts.states import ENDED, JobPriority, JobState, ProvisioningState
from batchhvd.wire.facts.times import read_moment


class PastAttempt(TypedDict):
    """An attempt that ended before the present one."""

    attempt: int
    ended: float
    error: ErrorDocument


class PrivateJobFields(TypedDict):
    """What a new job's record holds besides its document."""

    uuid: str
    keys: dict[str, str]
    secrets: dict[str, str]
    registry: str
    asked: Document
    warnings: list[str]
    queued: float
    outputs: str


@frozen
class Execution:
    """When a job ran and how it ended.

    Attributes:
        start, end: moments as the wire writes them, "" when there is none yet.
        exit_code: the exit code, None when there is none.
        errors: why it waits or failed, the latest first.
        ran: whether it began to run; if it ended without, both moments are that of its end.
    """

    start: str = ""
    end: str = ""
    exit_code: int | None = None
    errors: tuple[ErrorDocument, ...] = ()
    ran: bool = True

    @classmethod
    def of(cls, properties: JobProperties) -> Execution | None:
        """Returns what a document's ``properties`` tell, None if they tell nothing yet."""
        if "executionInfo" not in properties and additions.FIELD not in properties:
            return None
        info = properties.get("executionInfo", {})
        errors = tuple(additions.told_errors(properties))
        times = info.get("startTime", ""), info.get("endTime", "")
        return cls(*times, info.get("exitCode"), errors, additions.ran(properties))

    def shown(self, state: str) -> Document:
        """Returns ``executionInfo`` as Batch AI showed it: not before a job has begun, or has ended."""
        if state == JobState.QUEUED or not self.start:
            return {}
        errors = recorded.errors(self.errors) if state == JobState.FAILED else []
        info = {"startTime": self.start, "endTime": self.end, "exitCode": self.exit_code, "errors": errors}
        return merged({}, info)

    def added(self, warnings: Sequence[str]) -> Document:
        """Returns what the local service tells beyond that."""
        told = {additions.ERRORS: list(self.errors), additions.WARNINGS: list(warnings)}
        return merged({}, {**told, additions.RAN: None if self.ran else False})


@frozen
class StoredJob(RecordValue):
    """A job as the service keeps it.

    Attributes:
        state: how far it is, one of ``JobState``.
        changed: since when it is in that state, as the wire writes it.
        execution: when it ran, None when nothing is known yet.
        nodes: the names of the nodes that it was given; one that has ended remembers them.
        attempt: which attempt it is, 0 before the first.
        folder: the folder of the present attempt's task.
        handle: the engine's name for the present run, "" when there is none.
        history: the attempts before.
        queued: since when it has been waiting, in seconds since 1970; None in old records.
        ending: what its cluster has asked of it: ``"requeue"`` or ``"terminate"``, else "".
        is_preparing: whether its preparation runs.
        after: the jobs that must come before it.
    """

    state: str
    changed: str = ""
    execution: Execution | None = None
    nodes: tuple[str, ...] = ()
    attempt: int = 0
    folder: str = ""
    handle: str = ""
    history: tuple[PastAttempt, ...] = ()
    queued: float | None = None
    ending: str = ""
    is_preparing: bool = False
    after: tuple[EarlierJob, ...] = ()

    @classmethod
    def of(cls, record: Record) -> StoredJob:
        """Returns the job that a record holds."""
        properties: JobProperties = record.document["properties"]
        private = record.private
        return cls(
            record,
            properties["executionState"],
            properties.get("executionStateTransitionTime", ""),
            Execution.of(properties),
            tuple(private.get("nodes", ())),
            private.get("attempt", 0),
            private.get("folder", ""),
            private.get("handle", ""),
            tuple(private.get("history", ())),
            private.get("queued"),
            private.get("ending", ""),
            private.get("preparing", False),
            _after(properties),
        )

    @property
    def registry_password(self) -> str:
        """The password of its image's registry, or ""."""
        return str(self.record.private.get("registry", ""))

    def to_record(self) -> Record:
        """Returns the record with what has changed written into it; the order of its fields stays."""
        shown = {
            "executionState": self.state,
            "executionStateTransitionTime": self.changed,
        }
        kept = {
            "nodes": list(self.nodes),
            "attempt": self.attempt or None,
            "folder": self.folder,
            "handle": self.handle or None,
            "history": list(self.history),
            "queued": self.queued,
            "ending": self.ending,
            "preparing": self.is_preparing or None,
        }
        execution = self.execution or Execution()
        info, added = execution.shown(self.state), execution.added(self.warnings)
        return self._record({**shown, "executionInfo": info or None, additions.FIELD: added or None}, kept)

    @property
    def number(self) -> int:
        """Its place in the order of creation."""
        return self.record.number

    @property
    def properties(self) -> JobProperties:
        """The document's ``properties``, as they were read."""
        properties: JobProperties = self.record.document["properties"]
        return properties

    @property
    def cluster(self) -> str:
        """The key of its cluster."""
        return self.properties["cluster"]["id"].lower()

    @property
    def node_count(self) -> int:
        """How many nodes it needs."""
        return self.properties["nodeCount"]

    @property
    def priority(self) -> str:
        """Its priority in the queue."""
        return self.properties.get("schedulingPriority", JobPriority.NORMAL)

    @property
    def preparation(self) -> str:
        """The first line of its preparation's command, "" when it has none."""
        lines = str(self.record.document["properties"].get("jobPreparation", {}).get("commandLine", "")).strip()
        return lines.partition("\n")[0]

    @property
    def waiting_since(self) -> float:
        """Since when it has been waiting, in seconds since 1970."""
        return self.queued or read_moment(self.properties["creationTime"]).timestamp()

    @property
    def is_deleting(self) -> bool:
        """Whether it is being deleted."""
        return self.properties["provisioningState"] == ProvisioningState.DELETING

    @property
    def has_ended(self) -> bool:
        """Whether its state is final."""
        return self.state in ENDED

    @property
    def uuid(self) -> str:
        """The name of the folder that holds its tasks."""
        return str(self.record.private["uuid"])

    @property
    def outputs(self) -> str:
        """The folder of its output directories, relative to their segment; "" in old records: the segment itself."""
        return str(self.record.private.get("outputs", ""))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The fields of its creation that have no effect, one sentence each."""
        return tuple(self.record.private.get("warnings", ()))

    def in_state(self, state: str, time: str) -> StoredJob:
        """Returns the job in a state since a time."""
        return evolve(self, state=state, changed=time)

    def sibling(self, name: str) -> str:
        """Returns the id of another job of its experiment."""
        return f"{self.id.rpartition('/')[0]}/{name}"


def _after(properties: JobProperties) -> tuple[EarlierJob, ...]:
    variables = properties.get("environmentVariables", ())
    return next((earlier_jobs(entry.get("value", "")) for entry in variables if entry["name"] == AFTER), ())
