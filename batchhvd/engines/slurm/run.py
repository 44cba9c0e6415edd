"""What the files in a run's folder say about it."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TypedDict

from attrs import frozen

from batchhvd.engines import records
from batchhvd.engines.base import Status, StopReason, TaskState
from batchhvd.node.folder.document import NodeRecord
from batchhvd.node.folder.durable import DamagedRecordError, is_text, list_of, read_record
from batchhvd.node.folder.records import has_ended, read_node


class Submission(TypedDict):
    """``slurm.json``: the number of Slurm's job, and the names of the task's nodes."""

    job: str
    nodes: list[str]


def read_submission(folder: Path) -> Submission | None:
    """Returns the record of a submission, or None if there was none."""
    shape = {"job": is_text, "nodes": list_of(is_text)}
    found: Submission | None = read_record(folder / "slurm.json", shape)  # type: ignore[assignment]
    return found


def claimed(folder: Path) -> str | None:
    """Returns the number of the job that has begun in a folder, or None: its script links it there."""
    try:
        return os.readlink(folder / CLAIM)
    except OSError:
        return None


CLAIM = "slurm.job"


@frozen
class SlurmRun:
    """What the records of a run say about it.

    Attributes:
        job: the number of its job.
        folder: its folder.
        told: its status by the records of its nodes.
        missing: the indices of the nodes that have no record which says that they have ended.
        is_damaged: whether a record cannot be read: the run is ended, and has failed when Slurm says that it is over.
    """

    job: str
    folder: Path
    told: Status
    missing: tuple[int, ...] = ()
    is_damaged: bool = False

    @classmethod
    def read(cls, handle: str) -> SlurmRun:
        """Returns the run of a handle; its status is ``lost`` if the folder has no record of it."""
        job, _, place = handle.partition(" ")
        try:
            return cls._read(job, Path(place))
        except DamagedRecordError as error:
            told = Status(state=TaskState.FAILED, reason=StopReason.ENGINE, error=str(error))
            return cls(job, Path(place), told, is_damaged=True)

    @classmethod
    def _read(cls, job: str, folder: Path) -> SlurmRun:
        submission = read_submission(folder)
        if submission is None:
            error = f"{folder} has no record of Slurm's job {job}"
            return cls(job, folder, Status(state=TaskState.LOST, reason=StopReason.ENGINE, error=error))
        there = set(os.listdir(folder))
        found = [_node(folder, index, there) for index in range(len(submission["nodes"]))]
        stop = records.stop(folder) if "stop.json" in there else None
        if stop is None and any(record is not None and record["reason"] for record in found):
            found = [None] * len(found)  # of an earlier attempt, being put aside: nodes do not end so without a stop
        attempt = 1 + sum(name.startswith("attempt-") for name in there)
        missing = [index for index, record in enumerate(found) if not has_ended(record)]
        told = records.status(stop, found, attempt=attempt)
        return cls(claimed(folder) or job, folder, told, tuple(missing))

    @property
    def is_final(self) -> bool:
        """Whether the records say how it ended; nodes that were told to end may be about to start again."""
        return not self.is_damaged and not self.missing and self.told.reason != StopReason.NODE

    @property
    def moving(self) -> Status:
        """Its status if it has not ended."""
        told = self.told
        prepares = told.state == TaskState.PREPARING or told.started is None
        state = TaskState.PREPARING if prepares else TaskState.RUNNING
        return Status(state=state, started=told.started, attempt=told.attempt)


def _node(folder: Path, index: int, there: Collection[str]) -> NodeRecord | None:
    """Returns the record of a node, if its name is in the folder's listing.

    A name that is not listed is not looked up: network file systems remember for half a minute that it was missing.
    """
    return read_node(folder, index) if f"node-{index}.json" in there else None
