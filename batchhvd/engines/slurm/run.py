"""What the files in a run's folder say about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict

from attrs import frozen

from batchhvd.engines import records
from batchhvd.engines.base import Status, StopReason, TaskState
from batchhvd.node.records import has_ended


class Submission(TypedDict):
    """``slurm.json``: the number of Slurm's job, and the names of the task's nodes."""

    job: str
    nodes: list[str]


def read_submission(folder: Path) -> Submission | None:
    """Returns the record of a submission, or None if there was none."""
    try:
        found: Submission = json.loads((folder / "slurm.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


@frozen
class SlurmRun:
    """What the records of a run say about it.

    Attributes:
        job: the number of its job.
        folder: its folder.
        told: its status by the records of its nodes.
        missing: the indices of the nodes that have no record which says that they have ended.
    """

    job: str
    folder: Path
    told: Status
    missing: tuple[int, ...] = ()

    @classmethod
    def read(cls, handle: str) -> SlurmRun:
        """Returns the run of a handle; its status is ``lost`` if the folder has no record of it."""
        job, _, place = handle.partition(" ")
        folder = Path(place)
        submission = read_submission(folder)
        if submission is None:
            error = f"{folder} has no record of Slurm's job {job}"
            return cls(job, folder, Status(state=TaskState.LOST, reason=StopReason.ENGINE, error=error))
        found = records.nodes(folder, len(submission["nodes"]))
        told = records.status(records.stop(folder), found, attempt=1 + len(list(folder.glob("attempt-*"))))
        missing = [index for index, record in enumerate(found) if not has_ended(record)]
        return cls(job, folder, told, tuple(missing))

    @property
    def is_final(self) -> bool:
        """Whether the records say how it ended; nodes that were told to end may be about to start again."""
        return not self.missing and self.told.reason != StopReason.NODE

    @property
    def moving(self) -> Status:
        """Its status if it has not ended."""
        told = self.told
        prepares = told.state == TaskState.PREPARING or told.started is None
        state = TaskState.PREPARING if prepares else TaskState.RUNNING
        return Status(state=state, started=told.started, attempt=told.attempt)
