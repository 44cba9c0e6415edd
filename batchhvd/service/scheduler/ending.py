"""Why a job has to end although it did not by itself, and whether one that failed starts again. Pure."""

from __future__ import annotations

from batchhvd.engines.base import Status
from batchhvd.service.scheduler import task
from batchhvd.service.store import documents
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import ErrorDocument
from batchhvd.service.store.job import StoredJob
from batchhvd.wire.facts.causes import Code
from batchhvd.wire.facts.states import JobState

_EVICTIONS = 1000  # how often a job of a low-priority cluster is started again when it does not say
_TEXTS = {
    "delete": "The job was deleted.",
    "terminating": "The job was terminated on request.",
    "cluster": "The job's cluster was deleted.",
    "terminate": "The job was terminated because its nodes left the cluster.",
}


def of(job: StoredJob, cluster: StoredCluster | None) -> str:
    """Returns why a job has to end, "" when it need not."""
    if job.is_deleting:
        return "delete"
    if job.state == JobState.TERMINATING:
        return "terminating"
    if cluster is None or cluster.is_deleting:
        return "cluster"
    return job.ending


def error(ending: str, job: StoredJob) -> ErrorDocument:
    """Returns the error of a job that was ended."""
    return documents.error(Code.TERMINATED, _TEXTS[ending], Attempt=str(job.attempt))


def may_retry(job: StoredJob, cluster: StoredCluster | None, status: Status) -> bool:
    """Says whether a run that failed is started again: an eviction always, else as often as the job allows."""
    if status.reason not in ("node", "rank") and status.state != "lost":
        return False
    asked = task.retries(job.properties)
    evicted = cluster is not None and cluster.is_low_priority and (status.reason == "node" or status.state == "lost")
    allowed = asked if asked is not None else _EVICTIONS if evicted else 0
    return len(job.history) < allowed
