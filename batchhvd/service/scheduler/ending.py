"""Why a job has to end before it does so by itself, and whether a failed one starts again. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from batchhvd.engines.base import Status, StopReason, TaskState
from batchhvd.service.scheduler import task
from batchhvd.service.store import documents
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import ErrorDocument
from batchhvd.service.store.job import StoredJob
from batchhvd.wire.facts.causes import Code
from batchhvd.wire.facts.states import DeallocationOption, JobState, WireWord

_EVICTIONS = 1000  # how often a job of a low-priority cluster is started again when it does not say


class Ending(WireWord):
    """Why a job has to end; the last two are what its cluster asks for."""

    DELETED = "delete"
    TERMINATED = "terminating"
    CLUSTER_GONE = "cluster"
    REQUEUED = DeallocationOption.REQUEUE.value
    NODES_GONE = DeallocationOption.TERMINATE.value


TEXTS: Mapping[str, str] = {
    Ending.DELETED: "The job was deleted.",
    Ending.TERMINATED: "The specified job has been terminated by the user",  # as Batch AI put it
    Ending.CLUSTER_GONE: "The job's cluster was deleted.",
    Ending.NODES_GONE: "The job was terminated because its nodes left the cluster.",
}


def of(job: StoredJob, cluster: StoredCluster | None) -> str:
    """Returns why a job has to end, "" when it need not."""
    if job.is_deleting:
        return Ending.DELETED
    if job.state == JobState.TERMINATING:
        return Ending.TERMINATED
    if cluster is None or cluster.is_deleting:
        return Ending.CLUSTER_GONE
    return job.ending


def error(ending: str, job: StoredJob) -> ErrorDocument:
    """Returns the error of a job that was ended."""
    return documents.error(Code.TERMINATED, TEXTS[ending], Attempt=str(job.attempt))


def may_retry(job: StoredJob, cluster: StoredCluster | None, status: Status) -> bool:
    """Says whether a run that failed is started again: an eviction always, else as often as the job allows."""
    gone = status.reason == StopReason.NODE or status.state == TaskState.LOST
    if not gone and status.reason != StopReason.RANK:
        return False
    asked = task.retries(job.properties)
    evicted = cluster is not None and cluster.is_low_priority and gone
    allowed = asked if asked is not None else _EVICTIONS if evicted else 0
    return len(job.history) < allowed
