"""Decides the status of a run: Slurm says whether it is still running, its nodes' records say how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import evolve

from batchhvd.engines import records
from batchhvd.engines.base import Status, StopReason, TaskState
from batchhvd.engines.slurm.answers import SlurmJob
from batchhvd.engines.slurm.file_system import settling
from batchhvd.engines.slurm.reasons import reason_of
from batchhvd.engines.slurm.run import SlurmRun

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_ENDS = {  # how a job that Slurm has ended is reported: state, reason, error
    "CANCELLED": (TaskState.CANCELLED, StopReason.CANCELLED, "the job was cancelled in Slurm"),
    "TIMEOUT": (TaskState.FAILED, StopReason.TIME, "the job reached its time limit in Slurm"),
    "DEADLINE": (TaskState.FAILED, StopReason.TIME, "the job reached its deadline in Slurm"),
    "NODE_FAIL": (TaskState.FAILED, StopReason.NODE, "Slurm lost a node of the job"),
    "BOOT_FAIL": (TaskState.FAILED, StopReason.NODE, "a node of the job did not boot"),
    "PREEMPTED": (TaskState.FAILED, StopReason.NODE, "Slurm gave the job's nodes to another job"),
    "REVOKED": (TaskState.FAILED, StopReason.NODE, "Slurm moved the job to another cluster"),
    "OUT_OF_MEMORY": (TaskState.FAILED, StopReason.MEMORY, "the job used more memory than Slurm had given it"),
}
_OVER = frozenset({"COMPLETED", "FAILED", *_ENDS})
_FOR_NODES = frozenset(
    {"Resources", "Priority", "ReqNodeNotAvail", "PartitionNodeLimit", "PartitionConfig", "NodeDown"}
)
_UNSEEN = 128 + 53  # how Slurm reports a node that cannot open the job's folder or its output


def judged(
    run: SlurmRun, jobs: Mapping[str, SlurmJob] | None, silence: str = "", partition: Callable[[], str] = str
) -> Status:
    """Returns the status of a run whose records do not say how it ended.

    Args:
        run: the run.
        jobs: what Slurm says about the jobs that it knows, or None while it does not answer.
        silence: why it does not answer.
        partition: returns how many of the partition's nodes are in which state.
    """
    if jobs is None:
        waits = run.told.state == TaskState.QUEUED
        return evolve(run.told if waits else run.moving, reason=silence)
    job = jobs.get(run.job)
    if run.is_damaged:
        return run.told if job is None or job.state in _OVER else Status(state=TaskState.RUNNING)
    if job is None:
        return _forgotten(run)
    if job.restarts is not None:
        run = evolve(run, told=evolve(run.told, attempt=1 + job.restarts))
    if job.state in _WAITING:
        return _queued(run, job, partition)
    return _over(run, job) if job.state in _OVER else run.moving


def _queued(run: SlurmRun, job: SlurmJob, partition: Callable[[], str]) -> Status:
    """Says why a job waits, how many nodes are in which state if it waits for nodes, and what to do about it."""
    row = reason_of(job.reason)
    counts = partition() if job.reason.partition(",")[0] in _FOR_NODES else ""
    told = ": ".join(filter(None, [job.reason, row.meaning if row else "", counts]))
    advice = row.step.replace("JOB", run.job) if row else ""
    return Status(
        state=TaskState.QUEUED, reason=f"it waits in Slurm's queue ({told})", advice=advice, attempt=run.told.attempt
    )


def _forgotten(run: SlurmRun) -> Status:
    if not run.missing:
        return run.told
    error = f"Slurm does not know its job {run.job} any more, and not all nodes have recorded how they ended"
    return evolve(run.moving, state=TaskState.LOST, reason=StopReason.NODE, error=error)


def _over(run: SlurmRun, job: SlurmJob) -> Status:
    """Judges a run that has ended for Slurm, though its records say only that its nodes were told to end."""
    if run.missing and job.state in ("COMPLETED", "FAILED") and time.time() - (job.ended or 0) < settling(run.folder):
        return run.moving
    end = evolve(run.moving, ended=run.told.ended or job.ended, exit_code=job.exit_code)
    if job.state in ("COMPLETED", "FAILED"):
        return _unsaid(run, end, job) if run.missing else run.told
    state, reason, error = _ENDS[job.state]
    return evolve(end, state=state, reason=reason, error=error, node=run.told.node, exit_code=job.exit_code or None)


def _unsaid(run: SlurmRun, end: Status, job: SlurmJob) -> Status:
    """Judges a job whose batch script has ended, although not all nodes have recorded how they ended."""
    if job.state == "COMPLETED" and records.stop(run.folder) is None:  # all runners ended well; records may be hidden
        return evolve(end, state=TaskState.SUCCEEDED)
    if end.started is None:
        error, tail = "no node's runner has left a record", _tail(run.folder / "slurm.out")
        if end.exit_code == _UNSEEN:
            error = f"a node of the job cannot see {run.folder}; the service's root must be on a shared file system"
        return evolve(end, state=TaskState.FAILED, reason=StopReason.ENGINE, error=error, tail=tail)
    lost = [records.complete(run.folder, index, end.exit_code or 1) for index in run.missing]
    told = SlurmRun.read(f"{run.job} {run.folder}").told
    return evolve(told, node=lost[0]["node"], error=lost[0]["error"]) if told.reason == StopReason.NODE else told


def _tail(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
    except FileNotFoundError:
        return ()
