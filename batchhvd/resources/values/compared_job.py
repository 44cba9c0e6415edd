"""One job of a comparison: what it tried, and all that it has reported."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from attrs import field, frozen

from batchhvd.resources.values.metrics import Metrics
from batchhvd.resources.values.trial import state_of
from batchhvd.wire.facts.job_variables import POINT, SWEEP

if TYPE_CHECKING:
    from batchhvd.resources.job import Job

_DIGITS = 8  # of the digest of a job's files


@frozen
class ComparedJob:
    """One job of a comparison, or a run of another program that was read as one.

    Attributes:
        name: its name.
        state: how it stands.
        point: what it tried, by name.
        records: what it has reported, one for each epoch.
        ranks: how many it has; None if that is not known.
        began, ended: when it ran, or None.
        files: a digest of the files that were uploaded for it, "" if none are known.
        id: the job's id, "" for a run of another program.
    """

    name: str
    state: str
    point: Mapping[str, object]
    records: Sequence[Mapping[str, float]] = field(repr=False)
    ranks: int | None = None
    began: datetime | None = None
    ended: datetime | None = None
    files: str = ""
    id: str = ""

    @classmethod
    def of(cls, job: Job, metrics: Metrics) -> ComparedJob:
        """Returns a job that was read, with what it has reported."""
        spec = job.spec
        point = _point(spec.environment.get(POINT, ""))
        files = _digest(spec.content)
        state = state_of(job) if SWEEP in spec.environment else job.state  # a trial that was given up did not fail
        return cls(job.name, str(state), point, metrics, spec.ranks, job.started, job.ended, files, job.id)

    @property
    def seconds(self) -> float | None:
        """How long it ran, or None if it has not ended."""
        return (self.ended - self.began).total_seconds() if self.began and self.ended else None


def _point(text: str) -> dict[str, object]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:  # somebody else's variable
        return {}
    return dict(found) if isinstance(found, dict) else {}


def _digest(content: Mapping[str, str]) -> str:
    """Returns a digest of the files that were uploaded for a job, "" if none are known."""
    text = json.dumps(dict(content), sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()[:_DIGITS] if content else ""
