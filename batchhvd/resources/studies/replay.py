"""The same run again: with the code that it had, and then the proof that the weights are the same, or why not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from batchhvd.errors import SpecError
from batchhvd.resources.studies.difference import Difference, JobDifference, compare_runs
from batchhvd.resources.studies.run_record import KeptCode, RunRecord, read_record
from batchhvd.spec.toolkits import Horovod, PyTorch, script_of
from batchhvd.wire.facts.states import ENDED

if TYPE_CHECKING:
    from batchhvd.resources.job import Job
    from batchhvd.spec.job import JobSpec
    from batchhvd.wire.waiting import Report

PLACE = ".batchhvd/replay"
"""Where a share has code of old runs that run again."""


@frozen
class Replay:
    """A run that repeats another one.

    Attributes:
        job: the new run.
        original: the one that it repeats.
        notes: what was done so that it is the same, and what could not be.
    """

    job: Job
    original: Job
    notes: tuple[str, ...]

    def wait(self, *, timeout: float | None = None, report: Report | None = None) -> ReplayVerdict:
        """Waits until the new run has ended, and says whether it is the same.

        Args:
            timeout: seconds, or None for a week.
            report: is called with a line each time the state changes.

        Raises:
            WaitTimeoutError: the time is over; the job continues.
        """
        self.job.wait("ended", timeout=timeout, report=report)
        return verdict(difference(self.original, self.job))


@frozen
class ReplayVerdict:
    """Whether a run was repeated.

    Attributes:
        same: whether the weights are the same, bit for bit; None if a run has not recorded them.
        first: the first difference that may explain others; None if none was recorded.
        difference: all of them.
    """

    same: bool | None
    first: Difference | None
    difference: JobDifference

    def __str__(self) -> str:
        if self.same:
            more = f"; recorded as different: {self.first}" if self.first else ""
            return f"the same weights, bit for bit{more}"
        if self.same is None:
            first = f"; the first difference: {self.first}" if self.first else "; nothing that was recorded differs"
            return f"whether the weights are the same is not known, since a run has not recorded them{first}"
        if self.first:
            return f"other weights; the first difference: {self.first}"
        return (
            "other weights, and nothing else that was recorded differs: this training does not promise equal bits. "
            "On TensorFlow, keras.utils.set_random_seed and tf.config.experimental.enable_op_determinism() do; "
            "operations with several threads and data without a seed are the usual causes"
        )


def verdict(found: JobDifference) -> ReplayVerdict:
    """Returns what the difference between a run and its replay says."""
    results = {one.what: one for one in found if one.kind == "results"}
    unknown = any("weights" in text for text in found.unknown)
    causes = [one for one in found.causes if not _is_of_replay(one)]
    same = None if unknown else "weights" not in results
    return ReplayVerdict(same, causes[0] if causes else None, found)


def _is_of_replay(one: Difference) -> bool:
    """Says whether a difference is only where the replay has put the code."""
    return PLACE in one.after or PLACE in one.before


def difference(first: Job, second: Job) -> JobDifference:
    """Returns what differs between two runs.

    Raises:
        NotFoundError: a job does not exist.
    """
    records = read_record(first), read_record(second)
    readers = [KeptCode(job, record).read for job, record in zip((first, second), records, strict=True)]
    return compare_runs(*records, readers)


def start(job: Job, name: str | None, secrets: Mapping[str, object]) -> Replay:
    """Submits a run again; ``Job.replay`` describes the arguments."""
    record = read_record(job)
    if job.state not in ENDED:
        raise SpecError(f"job {job.name!r} is {job.state}", remedy="wait until it has ended, and replay it then")
    missing = sorted(set(record.spec.secrets) - set(secrets))
    if missing:
        problem = f"the values of the secrets {', '.join(missing)} are not kept with the job"
        raise SpecError(problem, remedy="give them: job.replay(secrets={...})")
    kept = KeptCode(job, record)
    notes = [f"{name}: {text}" for name, text in _limits(record)]
    spec = evolve(record.spec, secrets=dict(secrets)) if secrets else record.spec
    if changed := kept.changed():
        spec, script = _with_old_code(spec, kept, changed)
        notes.append(f"{', '.join(changed)} changed since; the code as it was then runs from {script}")
    cluster = job.workspace.cluster(str(job.document["properties"]["cluster"]["id"]).rpartition("/")[2])
    made = job.experiment.create_job(name or job.name, spec, cluster=cluster, rerun=True)
    return Replay(made, job, tuple(notes))


def _with_old_code(spec: JobSpec, kept: KeptCode, changed: Sequence[str]) -> tuple[JobSpec, str]:
    """Puts the code of a run into a folder of its own, and returns the specification that runs it, and its script."""
    task = spec.task
    if not isinstance(task, (Horovod, PyTorch)):
        problem = f"{', '.join(changed)} changed since, and the path of a task of {task.wire} is not replaced"
        raise SpecError(problem, remedy="put the old files back: job.difference() shows how they differ")
    digest = hashlib.sha256(json.dumps(dict(kept.record.code), sort_keys=True).encode()).hexdigest()[:16]
    script = kept.put(f"{PLACE}/{digest}")
    return evolve(spec, task=evolve(task, script=script)), script


def _limits(record: RunRecord) -> list[tuple[str, str]]:
    """Returns what of a run cannot be repeated for certain."""
    found = []
    if not record.node:
        found.append((record.name, "its code was not kept, so the present files run"))
    elif record.node.get("missing"):
        found.append((record.name, str(record.node["missing"])))
    if record.spec.preparation:
        found.append((record.name, "its preparation runs again, and may install other versions now"))
    if script_of(record.spec.task) and not record.training:
        found.append((record.name, "no seed, no data and no weights were recorded"))
    return found
