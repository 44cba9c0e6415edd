"""Why something is as it is: one verdict from all that is known, with the evidence and the next call to make.

Pure: ``Job.explain`` and ``Cluster.explain`` gather the facts and ask here.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from attrs import field, frozen

from batchhvd.wire.reasons import Reason


class Cause(str, Enum):
    """What a verdict can be."""

    SUCCEEDED = "succeeded"
    RUNNING = "running"
    WAITING_FOR_NODES = "waiting for idle nodes"
    WAITING_FOR_RESIZE = "waiting for the cluster to resize"
    CLUSTER_TOO_SMALL = "cluster too small"
    CLUSTER_UNUSABLE = "nodes unusable"
    CLUSTER_GONE = "cluster gone"
    MOUNT_FAILED = "mount failed"
    SCRIPT_MISSING = "script missing"
    PREPARATION_FAILED = "preparation failed"
    RANK_FAILED = "rank failed"
    OUT_OF_MEMORY = "out of memory"
    WALL_CLOCK = "wall-clock limit"
    TERMINATED = "terminated"
    SERVICE_RESTARTED = "service restarted"
    NODE_LOST = "node lost"
    HOROVOD_MISSING = "Horovod missing"
    HOROVOD_BROKEN = "Horovod broken"
    ENGINE_FAILED = "engine failed"
    READY = "ready"
    RESIZING = "resizing"
    NOT_MADE = "not made"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return str(self.value)


def _lines(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(lines)


@frozen
class Verdict:
    """Why a resource is as it is.

    Attributes:
        cause: what it is, one word for programs.
        why: one sentence for people.
        evidence: the facts it rests on, a line each: reasons of the service, the failed rank, its last lines.
        next: what to do, as the call to make where there is one.
        resource: the resource's id.
    """

    cause: Cause
    why: str
    evidence: tuple[str, ...] = field(default=(), converter=_lines)
    next: str = ""
    resource: str = ""

    def __str__(self) -> str:
        """Says it on a few lines."""
        lines = [f"{self.cause}: {self.why}", *(f"    {line}" for line in self.evidence)]
        return "\n".join([*lines, f"Next: {self.next}"] if self.next else lines)


@frozen
class JobFacts:
    """What is known of a job.

    Attributes:
        id, name: the job's.
        state: the job's state.
        nodes: how many nodes it needs.
        errors: the service's reasons.
        exit_code: its exit code, or None.
        started, ended: when it began and ended, or None.
        cluster: what is known of its cluster, None where that is gone.
        script: the script's path, or "".
        restarted: when the service was last started, where that is known.
        log: reads the end of one of its log files, "" where there is none.
    """

    id: str
    name: str
    state: str
    nodes: int
    errors: Sequence[Reason]
    exit_code: int | None
    started: datetime | None
    ended: datetime | None
    cluster: ClusterFacts | None
    script: str
    restarted: datetime | None
    log: Callable[[str], str]


@frozen
class ClusterFacts:
    """What is known of a cluster.

    Attributes:
        id, name: the cluster's.
        provisioning, state: its two states.
        target: how many nodes it shall have; of one that scales by itself, the most.
        counts: nodes by state.
        errors: the service's reasons.
    """

    id: str
    name: str
    provisioning: str
    state: str
    target: int
    counts: Mapping[str, int]
    errors: Sequence[Reason]

    @property
    def usable(self) -> int:
        """Nodes that run or can run a job."""
        return self.counts.get("idle", 0) + self.counts.get("running", 0)


# -- jobs --------------------------------------------------------------------------------------------------------------

_CAUSES = {
    "MountFailed": Cause.MOUNT_FAILED,
    "ScriptNotFound": Cause.SCRIPT_MISSING,
    "JobPreparationFailed": Cause.PREPARATION_FAILED,
    "RankFailed": Cause.RANK_FAILED,
    "OutOfMemory": Cause.OUT_OF_MEMORY,
    "WallClockLimit": Cause.WALL_CLOCK,
    "JobTerminated": Cause.TERMINATED,
    "NodeLost": Cause.NODE_LOST,
    "HorovodMissing": Cause.HOROVOD_MISSING,
    "HorovodBroken": Cause.HOROVOD_BROKEN,
    "EngineFailed": Cause.ENGINE_FAILED,
}
_INSTALL = "run `python -m batchhvd.trainer.install` on the machine that runs the nodes, then submit the job again"
_NEXT = {
    Cause.MOUNT_FAILED: "create the share, or correct the mount's account, share or key; then submit the job again",
    Cause.SCRIPT_MISSING: "share.upload(…) the script to where the job looks for it, then submit the job again",
    Cause.PREPARATION_FAILED: "correct JobSpec.preparation, then submit the job again",
    Cause.RANK_FAILED: "read job.stream('stderr.txt') for the whole story, mend the script, submit the job again",
    Cause.OUT_OF_MEMORY: "lower the batch size, or the ranks on a node (JobSpec.task.processes), and submit it again",
    Cause.WALL_CLOCK: "give JobSpec.max_seconds more time, or resume from the last checkpoint in a new job",
    Cause.TERMINATED: "submit the job again under a new name if it was not meant to end",
    Cause.SERVICE_RESTARTED: "submit the job again; it resumes where its script keeps checkpoints",
    Cause.NODE_LOST: "look at cluster.explain(), then submit it again; it resumes where its script keeps checkpoints",
    Cause.HOROVOD_MISSING: _INSTALL,
    Cause.HOROVOD_BROKEN: _INSTALL,
    Cause.ENGINE_FAILED: "read the execution-*.log files of job.files() and the service's log; then submit it again",
    Cause.UNKNOWN: "read the files of job.files()",
}


def of_job(facts: JobFacts) -> Verdict:
    """Returns why a job is in the state that it is in."""
    if facts.state == "failed":
        return _failed(facts)
    if facts.state == "queued":
        return _queued(facts)
    if facts.state == "succeeded":
        took = f" after {_seconds(facts.started, facts.ended)}" if facts.started and facts.ended else ""
        return Verdict(Cause.SUCCEEDED, f"job {facts.name!r} ended well{took}", next="job.files()", resource=facts.id)
    if facts.state == "terminating":
        why = f"somebody asked job {facts.name!r} to end, and its ranks are ending"
        return Verdict(Cause.TERMINATED, why, next="job.wait('ended')", resource=facts.id)
    return _running(facts)


def _running(facts: JobFacts) -> Verdict:
    since = f" since {facts.started:%Y-%m-%d %H:%M:%S %Z}" if facts.started else ""
    evidence = _texts(facts.errors)
    if facts.restarted and facts.started and facts.restarted > facts.started:
        evidence.append(f"the service was started again at {facts.restarted:%H:%M:%S}; the job went on meanwhile")
    why = f"job {facts.name!r} runs{since}"
    return Verdict(Cause.RUNNING, why, evidence, "job.stream() follows it, job.wait() waits for its end", facts.id)


def _failed(facts: JobFacts) -> Verdict:
    if not facts.errors:
        why = f"job {facts.name!r} failed with exit code {facts.exit_code}, and the service gave no reason"
        return Verdict(Cause.UNKNOWN, why, (), _NEXT[Cause.UNKNOWN], facts.id)
    first = facts.errors[0]
    cause = _cause(first, facts)
    evidence = [*_rank(first), *_last_lines(first, cause, facts), *_earlier(facts)]
    return Verdict(cause, _why(cause, first, facts), evidence, _NEXT[cause], facts.id)


def _cause(reason: Reason, facts: JobFacts) -> Cause:
    cause = _CAUSES.get(reason.code, Cause.UNKNOWN)
    meanwhile = facts.restarted and facts.started and facts.started < facts.restarted
    if cause in (Cause.NODE_LOST, Cause.ENGINE_FAILED) and meanwhile and _before(facts.restarted, facts.ended):
        return Cause.SERVICE_RESTARTED
    return cause


def _before(first: datetime | None, second: datetime | None) -> bool:
    return first is not None and (second is None or first <= second)


def _why(cause: Cause, reason: Reason, facts: JobFacts) -> str:
    said = str(reason).rstrip(".")
    if cause is Cause.SERVICE_RESTARTED:
        return f"the service was started again at {facts.restarted:%H:%M:%S} and found the job's ranks gone: {said}"
    if cause is Cause.SCRIPT_MISSING:
        return f"there is no {reason.details.get('Path') or facts.script} on the node: {said}"
    if cause is Cause.RANK_FAILED and _signal(reason):
        return f"{said} ({_signal(reason)})"
    return said


def _rank(reason: Reason) -> list[str]:
    names = {"Rank": "rank", "Node": "node", "ExitCode": "exit code", "Attempt": "attempt", "Path": "path"}
    facts = [f"{word} {reason.details[name]}" for name, word in names.items() if reason.details.get(name)]
    return [", ".join([*facts, _signal(reason)] if _signal(reason) else facts)] if facts else []


def _signal(reason: Reason) -> str:
    number = reason.details.get("Signal", "")
    try:
        return f"signal {signal.Signals(int(number)).name}" if number else ""
    except ValueError:
        return f"signal {number}"


def _last_lines(reason: Reason, cause: Cause, facts: JobFacts) -> list[str]:
    tail = reason.details.get("Tail", "").splitlines()
    if cause is Cause.PREPARATION_FAILED and not tail:
        tail = facts.log(f"stderr-job_prep-{reason.details.get('Node', '')}.txt").splitlines()
    if cause is Cause.RANK_FAILED and not tail:
        tail = facts.log("stderr.txt").splitlines()
    return _traceback(tail)[-20:]


def _traceback(lines: list[str]) -> list[str]:
    """Returns the last traceback in some lines, all of them where there is none."""
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    return lines[starts[-1] :] if starts else lines


def _earlier(facts: JobFacts) -> list[str]:
    """The reasons of earlier attempts, which the service lists behind the last one's."""
    return [f"before that: {reason}" for reason in facts.errors[1:]]


def _queued(facts: JobFacts) -> Verdict:
    cluster, needs = facts.cluster, f"job {facts.name!r} needs {facts.nodes} nodes"
    said = _texts(facts.errors)
    if cluster is None:
        return Verdict(
            Cause.CLUSTER_GONE, f"the cluster of job {facts.name!r} is gone", said, "delete the job", facts.id
        )
    evidence = [*said, f"cluster {cluster.name!r}: {_counts(cluster)}"]
    if cluster.target < facts.nodes:
        why = f"{needs}, and cluster {cluster.name!r} is set to {cluster.target} at most"
        return Verdict(Cause.CLUSTER_TOO_SMALL, why, evidence, f"cluster.resize({facts.nodes})", facts.id)
    if cluster.usable < facts.nodes and cluster.counts.get("unusable"):
        why = f"{needs}, and only {cluster.usable} of cluster {cluster.name!r} are usable"
        return Verdict(Cause.CLUSTER_UNUSABLE, why, [*evidence, *_texts(cluster.errors)], "cluster.explain()", facts.id)
    if cluster.state == "steady" and cluster.errors and sum(cluster.counts.values()) < facts.nodes:
        why = f"{needs}, and cluster {cluster.name!r} did not get what it asked for{_because(cluster)}"
        then = f"create the job anew with at most {cluster.usable} nodes, or give the engine more nodes"
        return Verdict(Cause.CLUSTER_TOO_SMALL, why, evidence, then, facts.id)
    if cluster.state == "resizing":
        why = f"{needs}, and cluster {cluster.name!r} is still resizing"
        return Verdict(Cause.WAITING_FOR_RESIZE, why, evidence, "job.wait('running')", facts.id)
    why = f"{needs}, and cluster {cluster.name!r} has {cluster.counts.get('idle', 0)} idle"
    then = f"job.wait('running'), or cluster.resize({cluster.target + facts.nodes}) to start it now"
    return Verdict(Cause.WAITING_FOR_NODES, why, evidence, then, facts.id)


# -- clusters ----------------------------------------------------------------------------------------------------------


def of_cluster(facts: ClusterFacts) -> Verdict:
    """Returns why a cluster is in the state that it is in."""
    evidence = [_counts(facts), *_texts(facts.errors)]
    made = f"cluster {facts.name!r}"
    if facts.provisioning == "failed":
        why = f"{made} could not be made"
        return Verdict(Cause.NOT_MADE, why, evidence, "delete it and create it anew, in another way", facts.id)
    if facts.counts.get("unusable"):
        why = f"{facts.counts['unusable']} nodes of {made} are unusable{_because(facts)}"
        then = "mend what the evidence names (setup task, mounts, machines), then cluster.resize(0) and up again"
        return Verdict(Cause.CLUSTER_UNUSABLE, why, evidence, then, facts.id)
    if facts.errors and facts.state == "steady":
        why = f"{made} did not get what it asked for{_because(facts)}"
        then = f"cluster.resize({facts.usable}), or give the engine more nodes"
        return Verdict(Cause.CLUSTER_TOO_SMALL, why, evidence, then, facts.id)
    if facts.state == "resizing":
        why = f"{made} is on its way to {facts.target} nodes"
        return Verdict(Cause.RESIZING, why, evidence, "cluster.wait()", facts.id)
    then = "experiment.create_job(…, cluster=cluster)" if facts.usable else "cluster.resize(…) to give it nodes"
    return Verdict(Cause.READY, f"{made} has the nodes that it was asked for", evidence, then, facts.id)


def of_node(facts: ClusterFacts, node: str) -> Verdict | None:
    """Returns why one node is as it is; None where the service has named nothing about it."""
    about = [reason for reason in facts.errors if reason.details.get("Node") == node]
    if not about:
        return None
    why = f"node {node} of cluster {facts.name!r} is unusable: {str(about[0]).rstrip('.')}"
    return Verdict(Cause.CLUSTER_UNUSABLE, why, _texts(about[1:]), of_cluster(facts).next, facts.id)


def _because(facts: ClusterFacts) -> str:
    return f": {str(facts.errors[0]).rstrip('.')}" if facts.errors else ""


def _counts(facts: ClusterFacts) -> str:
    counted = ", ".join(f"{count} {state}" for state, count in facts.counts.items() if count)
    return f"{facts.state}, {counted or 'no nodes'}, {facts.target} wanted"


def _texts(reasons: Sequence[Reason]) -> list[str]:
    return [str(reason) for reason in reasons]


def _seconds(start: Any, end: Any) -> str:
    return f"{(end - start).total_seconds():.1f} s"
