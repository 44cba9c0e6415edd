"""How a job goes from one state to the next. Pure: each function returns the job's next value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from batchhvd.engines.base import Status, TaskState
from batchhvd.service.store import documents
from batchhvd.service.store.documents import ErrorDocument
from batchhvd.service.store.job import Execution, PastAttempt, StoredJob
from batchhvd.wire.facts.causes import Code
from batchhvd.wire.facts.states import JobState
from batchhvd.wire.facts.times import write_moment

ENGINE, JOBS = "engine", "jobs"  # who makes a job wait, if it is not the cluster


def is_held(status: Status) -> bool:
    """Says whether a run waits in a queue of the engine's own."""
    return status.state == TaskState.QUEUED and bool(status.reason)


def waiting(reason: str, history: Sequence[PastAttempt], *, by: str = "", step: str = "") -> ErrorDocument:
    """Returns why a job waits and how its last attempt ended, as an error of its document.

    ``by`` says who makes it wait, if it is not the cluster: the engine, or other jobs; ``step`` what to do about it.
    """
    before = f" Attempt {history[-1]['attempt']} ended: {history[-1]['error']['message']}" if history else ""
    details = {name: value for name, value in (("By", by), ("Next", step)) if value}
    return documents.error(Code.WAITING, reason + before, **details)


def explained(job: StoredJob, reason: str, by: str = "") -> StoredJob:
    """Tells why a job waits."""
    return evolve(job, execution=evolve(job.execution or Execution(), errors=(_waits(job, reason, by),)))


def is_explained(job: StoredJob, reason: str, by: str = "") -> bool:
    """Says whether a job tells already that it waits for this reason."""
    told = job.execution is not None and job.execution.errors == (_waits(job, reason, by),)
    return told and "executionInfo" not in job.properties  # an older service told it there


def _waits(job: StoredJob, reason: str, by: str) -> ErrorDocument:
    return waiting(f"The job {reason}.", job.history, by=by)


def reserved(job: StoredJob, nodes: tuple[str, ...], tasks: Path) -> StoredJob:
    """Gives a job its nodes and the folder of its next attempt."""
    attempt = job.attempt + 1
    return evolve(job, attempt=attempt, folder=str(tasks / job.uuid / str(attempt)), nodes=nodes)


def released(job: StoredJob) -> StoredJob:
    """Takes the nodes from a job that has no run; it waits for others."""
    return evolve(job, nodes=(), ending="")


def submitted(job: StoredJob, handle: str, status: Status, now: float) -> StoredJob:
    """Notes that a job has a run; the job may be terminating by now."""
    execution = evolve(job.execution or Execution(), errors=())
    job = evolve(job, handle=handle, execution=execution)
    return observed(job, status, now) if job.state == JobState.QUEUED else job


def prepares(job: StoredJob, status: Status) -> bool:
    """Says whether a run is with its job's preparation."""
    return status.state == TaskState.PREPARING and bool(job.preparation)


def is_news(job: StoredJob, status: Status) -> bool:
    """Says whether a run that has not ended may change its job: asked for each running job at each tick."""
    begun = status.started is not None and not (job.execution and job.execution.start)
    return begun or prepares(job, status) != job.is_preparing or is_held(status) or job.state == JobState.QUEUED


def noted(job: StoredJob, status: Status, now: float) -> StoredJob:
    """Keeps what the engine says of a run that has not ended: that it waits and why, or when it began."""
    return observed(job, status, now) if job.state in (JobState.QUEUED, JobState.RUNNING) else job


def observed(job: StoredJob, status: Status, now: float) -> StoredJob:
    """Shows a run that has not ended: as queued with the reason, or as running and since when."""
    held, execution = is_held(status), job.execution or Execution()
    if held:
        reason = f"{status.reason[:1].upper()}{status.reason[1:]}."
        execution = evolve(execution, errors=(waiting(reason, job.history, by=ENGINE, step=status.advice),))
    elif job.state == JobState.QUEUED:
        execution = evolve(execution, errors=())
    if not held and status.started is not None and not execution.start:
        execution = evolve(execution, start=write_moment(status.started))
    state = JobState.QUEUED if held else JobState.RUNNING
    job = evolve(job, execution=execution, is_preparing=prepares(job, status))
    return job if job.state == state else job.in_state(state, write_moment(now))


def requeued(job: StoredJob, error: ErrorDocument, now: float) -> StoredJob:
    """Puts a job back into the queue after an attempt that ended with an error."""
    history: tuple[PastAttempt, ...] = (*job.history, {"attempt": job.attempt, "ended": now, "error": error})
    execution = Execution(errors=(waiting("It starts again.", history),))
    job = evolve(
        job, history=history, nodes=(), queued=now, ending="", handle="", execution=execution, is_preparing=False
    )
    return job.in_state(JobState.QUEUED, write_moment(now))


def finished(job: StoredJob, status: Status, error: ErrorDocument | None, now: float) -> StoredJob:
    """Ends a job as its run ended; its errors are that of the run, if there is one, and those of earlier attempts."""
    before = job.execution or Execution()
    errors = (*(() if error is None else (error,)), *(entry["error"] for entry in job.history))
    execution = Execution(
        start=before.start or write_moment(status.started or now),
        end=write_moment(status.ended or now),
        exit_code=before.exit_code if status.exit_code is None else status.exit_code,
        errors=errors,
    )
    state = JobState.SUCCEEDED if error is None else JobState.FAILED
    return evolve(job, execution=execution, is_preparing=False).in_state(state, write_moment(now))


def failed(job: StoredJob, error: ErrorDocument, now: float) -> StoredJob:
    """Ends a job that has no run."""
    time, before = write_moment(now), job.execution or Execution()
    ran = bool(before.start)
    execution = Execution(before.start or time, time, before.exit_code, (error,), ran=ran)
    return evolve(job, execution=execution, nodes=()).in_state(JobState.FAILED, write_moment(now))


def wished(job: StoredJob, action: str) -> StoredJob:
    """Notes that a job's cluster needs its nodes back; the first wish counts."""
    return job if job.ending else evolve(job, ending=action)
