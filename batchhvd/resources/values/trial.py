"""One trial of a sweep: a point, the job that tries it, and what that has reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from attrs import define, field

from batchhvd.errors import SpecError
from batchhvd.resources.values.metrics import Metrics
from batchhvd.wire.facts.causes import Code
from batchhvd.wire.facts.states import ENDED, JobState, WireWord

if TYPE_CHECKING:
    from batchhvd.resources.job import Job
    from batchhvd.sweeps import Point


# For type checkers and editors.
TrialWord = Literal["planned", "queued", "running", "succeeded", "failed", "given up"]


class TrialState(WireWord):
    """How a trial stands."""

    PLANNED = "planned"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    GIVEN_UP = "given up"


OPEN = (TrialState.PLANNED, TrialState.QUEUED, TrialState.RUNNING)


@define
class Trial:
    """One trial of a sweep.

    Attributes:
        number: its number, from 1.
        point: the values that it tries, by name.
        state: ``planned`` (no job yet), ``queued``, ``running``, ``succeeded``, ``failed`` or ``given up``.
        job: the job, or None while it is planned.
    """

    number: int
    point: Point
    state: TrialState | TrialWord
    job: Job | None
    _metrics: Metrics | None = field(default=None, repr=False, eq=False)

    @property
    def metrics(self) -> Metrics:
        """What it had reported about its epochs when this was first asked for after the trial was read."""
        if self._metrics is None:
            started = self.job is not None and self.state not in (TrialState.PLANNED, TrialState.QUEUED)
            self._metrics = self.job.metrics() if self.job and started else Metrics._read("")
        return self._metrics

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.state not in OPEN

    @property
    def seconds(self) -> float | None:
        """How long it ran, or None if it has not ended."""
        job = self.job
        return (job.ended - job.started).total_seconds() if job and job.ended and job.started else None

    def curve(self, metric: str) -> list[float]:
        """Returns a metric's value after each epoch, the first epoch first.

        Raises:
            SpecError: the training reports no metric of this name.
        """
        if self.metrics and metric not in self.metrics[-1]:
            known = sorted(name for name in self.metrics[-1] if name not in ("epoch", "seconds"))
            raise SpecError(
                f"trial {self.number} reports no {metric!r}", remedy=f"take one of {', '.join(known) or 'none'}"
            )
        return [row[metric] for row in self.metrics if metric in row]

    def row(self) -> dict[str, object]:
        """Returns the trial as a row of a table: its number, values, state, epochs, last metrics and seconds."""
        last: Mapping[str, float] = self.metrics[-1] if self.metrics else {}
        figures = {name: value for name, value in last.items() if name not in ("epoch", "seconds")}
        own = {"trial": self.number, **self.point, "state": str(self.state), "epochs": len(self.metrics)}
        return {**own, **{name: value for name, value in figures.items() if name not in own}, "seconds": self.seconds}


def state_of(job: Job | None) -> TrialState:
    """Returns how a trial stands whose job is known."""
    if job is None:
        return TrialState.PLANNED
    if job.state == JobState.SUCCEEDED:
        return TrialState.SUCCEEDED
    if job.state in ENDED or job.state == JobState.TERMINATING:
        ended_by_hand = job.state == JobState.TERMINATING or any(one.code == Code.TERMINATED for one in job.errors)
        return TrialState.GIVEN_UP if ended_by_hand else TrialState.FAILED
    return TrialState.RUNNING if job.state == JobState.RUNNING else TrialState.QUEUED
