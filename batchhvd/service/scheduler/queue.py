"""Which waiting jobs start, in which order, and why the others wait. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from batchhvd.wire.facts.states import JobPriority

PATIENCE = 60.0  # seconds that a waiting job lets smaller ones pass
ORDER: Mapping[str, int] = {JobPriority.HIGH: 0, JobPriority.NORMAL: 1, JobPriority.LOW: 2}
"""How early a job of each priority is looked at."""


@frozen
class Waiting:
    """A job in the queue of a cluster.

    Attributes:
        id: the job's id.
        name: for the reasons of others.
        number: the order of creation.
        priority: ``"high"``, ``"normal"`` or ``"low"``.
        nodes: how many it needs.
        since: when it was queued, seconds since 1970.
    """

    id: str
    name: str
    number: int
    priority: str
    nodes: int
    since: float


@frozen
class Decision:
    """What happens to a queue.

    Attributes:
        starts: job id and the nodes it gets, in the order of starting.
        reasons: why each other job waits, by its id.
    """

    starts: tuple[tuple[str, tuple[str, ...]], ...]
    reasons: dict[str, str]


def decide(waiting: Sequence[Waiting], free: Sequence[str], size: int, now: float) -> Decision:
    """Gives the free nodes to waiting jobs.

    Jobs start by priority, and in the order of their creation among equals. A job that does not fit the free nodes lets
    those behind it pass for ``PATIENCE`` seconds; after that the free nodes are kept for it, so that no stream of small
    jobs can starve it. A job that is larger than the cluster holds up no other.

    Args:
        waiting: the queue, in any order.
        free: names of the idle nodes.
        size: how many nodes the cluster has or is getting.
        now: seconds since 1970.
    """
    left, starts, reasons, head = list(free), [], {}, None
    for job in sorted(waiting, key=lambda job: (ORDER[job.priority], job.number)):
        if job.nodes > size:
            reasons[job.id] = f"needs {job.nodes} nodes; the cluster has {size}: resize it"
        elif head is not None:
            reasons[job.id] = f"waits behind the job {head.name}, for which nodes are kept free"
        elif job.nodes <= len(left):
            starts.append((job.id, tuple(left[: job.nodes])))
            del left[: job.nodes]
        else:
            reasons[job.id] = _lacking(job.nodes, len(left))
            head = job if now - job.since >= PATIENCE else None
    return Decision(tuple(starts), reasons)


def _lacking(needed: int, free: int) -> str:
    nodes = "node" if needed == 1 else "nodes"
    return f"needs {needed} {nodes}, of which {free} {'is' if free == 1 else 'are'} free"
