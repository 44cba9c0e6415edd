"""Why something is as it is: one verdict from all known facts, with the evidence and the next step.

Pure functions: ``Job.explain`` and ``Cluster.explain`` gather the facts and call them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from attrs import evolve, field, frozen

from batchhvd.wire.facts.causes import CAUSE_OF_CODE, GONE_WITH_THE_SERVICE, REMEDIES, Cause, Remedy, remedy_of
from batchhvd.wire.facts.output import without_notices
from batchhvd.wire.facts.states import AllocationState, JobState, ProvisioningState
from batchhvd.wire.reasons import Reason


def _lines(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(lines)


@frozen
class Verdict:
    """Why a resource is as it is.

    Attributes:
        cause: the cause, one word for programs.
        why: one sentence for people.
        evidence: the facts it rests on, a line each: reasons of the service, the failed rank, its last lines.
        next: what to do, as the call to make if there is one.
        resource: the resource's id.
    """

    cause: Cause
    why: str
    evidence: tuple[str, ...] = field(default=(), converter=_lines)
    next: str = ""
    resource: str = ""
    _shell: str = field(default="", repr=False, eq=False)

    def for_shell(self) -> Verdict:
        """Returns the verdict with the next step as a command of ``batchhvd`` instead of a call in Python."""
        return evolve(self, next=self._shell or self.next)

    def __str__(self) -> str:
        """Returns it as a few lines of text."""
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
        cluster: what is known of its cluster, None if that is gone.
        script: the script's path, or "".
        restarted: when the service was last started, if that is known.
        log: reads the end of its log files of a name or pattern; "" if there are none.
        preparing: what its preparation is doing, "" if it does nothing.
        origin: how it was started, as ``Remedy.after`` takes it; "" for a job file.
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
    preparing: str = ""
    origin: str = ""


@frozen
class ClusterFacts:
    """What is known of a cluster.

    Attributes:
        id, name: the cluster's.
        provisioning, state: its two states.
        target: how many nodes it should have; the maximum if it scales by itself.
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
        """Nodes that run a job or could run one."""
        return self.counts.get("idle", 0) + self.counts.get("running", 0)


# -- jobs --------------------------------------------------------------------------------------------------------------


def verdict(cause: Cause, why: str, evidence: Iterable[str], remedy: Remedy, resource: str) -> Verdict:
    """Returns a verdict with its next step, in words for Python and for the command line."""
    return Verdict(cause, why, evidence, remedy.python, resource, remedy.shell)


def of_job(facts: JobFacts) -> Verdict:
    """Returns why a job is in the state that it is in."""
    judges: dict[str, Callable[[JobFacts], Verdict]] = {
        JobState.FAILED: _failed,
        JobState.QUEUED: _queued,
        JobState.SUCCEEDED: _succeeded,
        JobState.TERMINATING: _terminating,
    }
    return judges.get(facts.state, _running)(facts)


def _succeeded(facts: JobFacts) -> Verdict:
    took = f" after {_seconds(facts.started, facts.ended)}" if facts.started and facts.ended else ""
    remedy = Remedy("job.files()", f"batchhvd job files {facts.name}")
    tries = f" in attempt {len(facts.errors) + 1}" if facts.errors else ""
    earlier = [f"before that: {reason}" for reason in facts.errors]
    return verdict(Cause.SUCCEEDED, f"job {facts.name!r} succeeded{tries}{took}", earlier, remedy, facts.id)


def _terminating(facts: JobFacts) -> Verdict:
    why = f"job {facts.name!r} is being terminated, and its ranks are ending"
    remedy = Remedy("job.wait('ended')", f"batchhvd job wait {facts.name} --until ended")
    return verdict(Cause.TERMINATED, why, (), remedy, facts.id)


def _running(facts: JobFacts) -> Verdict:
    since = f" since {facts.started:%Y-%m-%d %H:%M:%S %Z}" if facts.started else ""
    evidence = _texts(facts.errors)
    if facts.restarted and facts.started and facts.restarted > facts.started:
        evidence.append(f"the service was started again at {facts.restarted:%H:%M:%S}; the job kept running")
    evidence += [line for line in facts.log("execution*.log").splitlines() if "have waited for" in line][-1:]
    remedy = Remedy(
        "job.stream() follows it, job.wait() waits for its end",
        f"batchhvd job logs {facts.name} follows it, batchhvd job wait {facts.name} waits for its end",
    )
    doing = f" and is {facts.preparing}" if facts.preparing else ""
    return verdict(Cause.RUNNING, f"job {facts.name!r} runs{since}{doing}", evidence, remedy, facts.id)


def _failed(facts: JobFacts) -> Verdict:
    if not facts.errors:
        why = f"job {facts.name!r} failed with exit code {facts.exit_code}, and the service gave no reason"
        return verdict(Cause.UNKNOWN, why, (), REMEDIES[Cause.UNKNOWN].named(facts.name), facts.id)
    first = facts.errors[0]
    cause = _cause(first, facts)
    evidence = [*_rank(first), *_image(first), *_last_lines(first, cause, facts), *_earlier(facts)]
    remedy = remedy_of(cause, first.details).after(facts.origin).named(facts.name)
    return verdict(cause, _why(cause, first, facts), evidence, remedy, facts.id)


def _cause(reason: Reason, facts: JobFacts) -> Cause:
    cause = CAUSE_OF_CODE.get(reason.code, Cause.UNKNOWN)
    meanwhile = facts.restarted and facts.started and facts.started < facts.restarted
    if cause in GONE_WITH_THE_SERVICE and meanwhile and _before(facts.restarted, facts.ended):
        return Cause.SERVICE_RESTARTED
    return cause


def _before(first: datetime | None, second: datetime | None) -> bool:
    return first is not None and (second is None or first <= second)


def _why(cause: Cause, reason: Reason, facts: JobFacts) -> str:
    said = str(reason).rstrip(".")
    if cause is Cause.SERVICE_RESTARTED:
        when = f"the service was started again at {facts.restarted:%H:%M:%S}"
        return f"{when} and found that the job's ranks were gone: {said}"
    if cause is Cause.SCRIPT_MISSING:
        return f"{reason.details.get('Path') or facts.script} does not exist on the node: {said}"
    return said


def _rank(reason: Reason) -> list[str]:
    names = {"Rank": "rank", "Node": "node", "ExitCode": "exit code", "Attempt": "attempt", "Path": "path"}
    facts = [f"{word} {reason.details[name]}" for name, word in names.items() if reason.details.get(name)]
    return [", ".join([*facts, _signal(reason)] if _signal(reason) else facts)] if facts else []


def _image(reason: Reason) -> list[str]:
    """Says that the job's image was not run, which may be why it failed."""
    return [reason.details["Image"]] if reason.details.get("Image") else []


def _signal(reason: Reason) -> str:
    name = reason.signal
    return f"signal {name}" if name.startswith("SIG") else name


def _last_lines(reason: Reason, cause: Cause, facts: JobFacts) -> list[str]:
    tail = reason.details.get("Tail", "").splitlines()
    if cause is Cause.PREPARATION_FAILED and not tail:
        named, alone = f"stderr-job_prep-{reason.details.get('Node', '')}.txt", "stderr-job_prep.txt"
        tail = (facts.log(named) or facts.log(alone)).splitlines()
    if cause is Cause.RANK_FAILED and not tail:
        tail = facts.log("stderr.txt").splitlines()
    return _traceback(without_notices(tail))[-20:]


def _traceback(lines: list[str]) -> list[str]:
    """Returns the last traceback in some lines, or all of them if there is none."""
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    return lines[starts[-1] :] if starts else lines


def _earlier(facts: JobFacts) -> list[str]:
    """The reasons of earlier attempts, which the service lists after the last one's."""
    return [f"before that: {reason}" for reason in facts.errors[1:]]


def _queued(facts: JobFacts) -> Verdict:
    cluster, needs = facts.cluster, f"job {facts.name!r} needs {facts.nodes} nodes"
    if cluster is None:
        why = f"the cluster of job {facts.name!r} is gone"
        remedy = Remedy("job.delete()", f"batchhvd job delete {facts.name}")
        return verdict(Cause.CLUSTER_GONE, why, _texts(facts.errors), remedy, facts.id)
    cause, but, remedy = _waits(facts, cluster)
    evidence = _texts(facts.errors)  # of an engine's queue: its own counts, since others use its nodes too
    evidence += [] if cause is Cause.WAITING_FOR_ENGINE else [f"cluster {cluster.name!r}: {_counts(cluster)}"]
    evidence += _texts(cluster.errors) if cause is Cause.CLUSTER_UNUSABLE else ()
    return verdict(cause, f"{needs}, and {but}", evidence, remedy, facts.id)


def _waits(facts: JobFacts, cluster: ClusterFacts) -> tuple[Cause, str, Remedy]:
    """Says what a job waits for on its cluster, and what to do about it."""
    named, shell = f"cluster {cluster.name!r}", f"batchhvd cluster resize {cluster.name} --target"
    wait = Remedy("job.wait('running')", f"batchhvd job wait {facts.name} --until running")
    if any(error.details.get("By") == "engine" for error in facts.errors):
        step = next((error.details["Next"] for error in facts.errors if error.details.get("Next")), "")
        why = "what runs the jobs of the service has not started it yet"
        return Cause.WAITING_FOR_ENGINE, why, Remedy(step, step) if step else wait
    if any(error.details.get("By") == "jobs" for error in facts.errors):
        return Cause.WAITING_FOR_JOBS, "other jobs must come first", wait
    if cluster.target < facts.nodes:
        remedy = Remedy(f"cluster.resize({facts.nodes})", f"{shell} {facts.nodes}")
        return Cause.CLUSTER_TOO_SMALL, f"{named} is set to {cluster.target} at most", remedy
    if cluster.usable < facts.nodes and cluster.counts.get("unusable"):
        remedy = Remedy("cluster.explain()", f"batchhvd cluster explain {cluster.name}")
        return Cause.CLUSTER_UNUSABLE, f"only {cluster.usable} of {named} are usable", remedy
    steady = cluster.state == AllocationState.STEADY
    if steady and cluster.errors and sum(cluster.counts.values()) < facts.nodes:
        then = f"create the job again with at most {cluster.usable} nodes, or give the engine more nodes"
        return Cause.CLUSTER_TOO_SMALL, f"{named} did not get all its nodes{_because(cluster)}", Remedy(then, then)
    if cluster.state == AllocationState.RESIZING:
        return Cause.WAITING_FOR_RESIZE, f"{named} is still resizing", wait
    more = cluster.target + facts.nodes
    remedy = Remedy(
        f"{wait.python}, or cluster.resize({more}) to start it now", f"{wait.shell}, or {shell} {more} to start it now"
    )
    return Cause.WAITING_FOR_NODES, f"{named} has {cluster.counts.get('idle', 0)} idle", remedy


# -- clusters ----------------------------------------------------------------------------------------------------------


def of_cluster(facts: ClusterFacts) -> Verdict:
    """Returns why a cluster is in the state that it is in."""
    cause, why, remedy = _stands(facts)
    return verdict(cause, why, [_counts(facts), *_texts(facts.errors)], remedy, facts.id)


def _stands(facts: ClusterFacts) -> tuple[Cause, str, Remedy]:
    named, shell = f"cluster {facts.name!r}", f"batchhvd cluster resize {facts.name} --target"
    if facts.provisioning == ProvisioningState.FAILED:
        then = "delete it and create it again, in another way"
        return Cause.NOT_MADE, f"{named} could not be created", Remedy(then, then)
    if facts.counts.get("unusable"):
        fix = "fix what the evidence names (setup task, mounts, machines), then"
        remedy = Remedy(f"{fix} cluster.resize(0) and up again", f"{fix} {shell} 0 and up again")
        why = f"{facts.counts['unusable']} nodes of {named} are unusable{_because(facts)}"
        return Cause.CLUSTER_UNUSABLE, why, remedy
    if facts.errors and facts.state == AllocationState.STEADY:
        engine = "or give the engine more nodes"
        remedy = Remedy(f"cluster.resize({facts.usable}), {engine}", f"{shell} {facts.usable}, {engine}")
        return Cause.CLUSTER_TOO_SMALL, f"{named} did not get all its nodes{_because(facts)}", remedy
    if facts.state == AllocationState.RESIZING:
        remedy = Remedy("cluster.wait()", f"batchhvd cluster wait {facts.name}")
        return Cause.RESIZING, f"{named} is on its way to {facts.target} nodes", remedy
    submit = Remedy("experiment.create_job(…, cluster=cluster)", f"batchhvd job submit job.json --cluster {facts.name}")
    grow = Remedy("cluster.resize(…) to give it nodes", f"{shell} … to give it nodes")
    return Cause.READY, f"{named} has all its nodes", submit if facts.usable else grow


def of_node(facts: ClusterFacts, node: str) -> Verdict | None:
    """Returns why one node is as it is; None if the service has named nothing about it."""
    about = [reason for reason in facts.errors if reason.details.get("Node") == node]
    if not about:
        return None
    why = f"node {node} of cluster {facts.name!r} is unusable: {str(about[0]).rstrip('.')}"
    return evolve(of_cluster(facts), cause=Cause.CLUSTER_UNUSABLE, why=why, evidence=_texts(about[1:]))


def of_sound_node(facts: ClusterFacts, node: str) -> Verdict:
    """Returns the verdict on a node about which the service has named nothing."""
    why = f"node {node} of cluster {facts.name!r} is sound"
    remedy = Remedy("cluster.explain() tells of all", f"batchhvd cluster explain {facts.name} tells of all")
    return verdict(Cause.READY, why, [f"the cluster has {_counted(facts)}"], remedy, facts.id)


def _because(facts: ClusterFacts) -> str:
    return f": {str(facts.errors[0]).rstrip('.')}" if facts.errors else ""


def _counts(facts: ClusterFacts) -> str:
    return f"{facts.state}, {_counted(facts)}, {facts.target} wanted"


def _counted(facts: ClusterFacts) -> str:
    return ", ".join(f"{count} {state}" for state, count in facts.counts.items() if count) or "no nodes"


def _texts(reasons: Sequence[Reason]) -> list[str]:
    return [str(reason) for reason in reasons]


def _seconds(start: datetime, end: datetime) -> str:
    return f"{(end - start).total_seconds():.1f} s"
