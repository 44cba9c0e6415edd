"""How the nodes of a cluster come, work and go. Pure: each function returns the cluster's next value."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import TypeVar

from attrs import evolve, frozen

from batchhvd.service.store import documents
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import ErrorDocument
from batchhvd.wire.facts.states import AllocationState, ClusterNodeState, DeallocationOption
from batchhvd.wire.facts.times import write_moment

IDLE_SECONDS = 60.0  # how long an automatically scaled cluster keeps an idle node
_SETUP = "SetupTaskFailed"
T = TypeVar("T")


@frozen
class NodeUse:
    """A job that wants or has nodes of a cluster.

    Attributes:
        id: the job's id.
        number: the order of creation.
        needs: how many nodes it needs.
        nodes: the names of those it has, none while it waits.
    """

    id: str
    number: int
    needs: int
    nodes: tuple[str, ...]


@frozen
class Wish:
    """A job must give up its nodes.

    Attributes:
        id: the job's id.
        action: ``DeallocationOption.REQUEUE`` or ``TERMINATE``.
    """

    id: str
    action: str


def advance(
    cluster: StoredCluster,
    uses: Sequence[NodeUse],
    now: float,
    limit: int,
    broken: Mapping[str, str] | None = None,
) -> StoredCluster:
    """Moves a cluster one step towards its scale settings; its counts always add up.

    Args:
        cluster: the cluster.
        uses: the jobs that want or have its nodes.
        now: seconds since 1970.
        limit: how many nodes the engine has.
        broken: those of them that take no tasks, and why.
    """
    busy = {name for use in uses for name in use.nodes}
    cluster = _departed(cluster, busy)
    cluster = evolve(cluster, target=min(limit, target(cluster, uses, busy, now)))
    cluster = _told_of_limit(_relieved(cluster), limit)
    cluster = _grown(_shrunk(cluster, uses, busy), now)
    cluster = _set_aside(cluster, busy, limit, broken or {})
    return counted(cluster, busy, now)


def target(cluster: StoredCluster, uses: Sequence[NodeUse], busy: set[str], now: float) -> int:
    """Returns how many nodes a cluster should have now."""
    if "manual" in cluster.scale:
        return cluster.scale["manual"]["targetNodeCount"]
    scale = cluster.scale["autoScale"]
    least, most = scale["minimumNodeCount"], scale["maximumNodeCount"]
    if cluster.target is None:
        return min(most, max(least, scale.get("initialNodeCount", 0)))
    wanted = min(most, max(least, sum(use.needs for use in uses if use.needs <= most)))
    staying = _staying(cluster)
    rested = [n for n in staying if n not in busy and now - cluster.idle.get(n, now) >= IDLE_SECONDS]
    return max(wanted, min(most, len(staying) - len(rested)))


def _staying(cluster: StoredCluster) -> list[str]:
    return [name for name in cluster.names if name not in cluster.leaving]


def _with_errors(cluster: StoredCluster, code: str, errors: Sequence[ErrorDocument]) -> StoredCluster:
    """Replaces a cluster's errors of one code."""
    found = [*(error for error in cluster.errors or () if error["code"] != code), *errors]
    return evolve(cluster, errors=tuple(found)) if found or cluster.errors is not None else cluster


def _relieved(cluster: StoredCluster) -> StoredCluster:
    """Takes back the errors of setups whose nodes work again or are gone."""
    errors = [error for error in cluster.errors or () if error["code"] == _SETUP and _names(error, cluster.unusable)]
    return _with_errors(cluster, _SETUP, errors)


def _names(error: ErrorDocument, nodes: Collection[str]) -> bool:
    return any(detail["name"] == "Node" and detail["value"] in nodes for detail in error["details"])


def _told_of_limit(cluster: StoredCluster, limit: int) -> StoredCluster:
    asked = cluster.scale["manual"]["targetNodeCount"] if "manual" in cluster.scale else 0
    message = f"The engine has {limit} nodes at most; the cluster asked for {asked}."
    errors = [documents.error("NotEnoughNodes", message)] if asked > limit else []
    return _with_errors(cluster, "NotEnoughNodes", errors)


def _only(values: Mapping[str, T], names: Collection[str]) -> Mapping[str, T]:
    return {name: value for name, value in values.items() if name in names}


def _departed(cluster: StoredCluster, busy: set[str]) -> StoredCluster:
    """Takes the leaving nodes that nothing uses any more out of the cluster."""
    gone = {name for name in cluster.leaving if name not in busy}
    names = tuple(name for name in cluster.names if name not in gone)
    return evolve(
        cluster,
        names=names,
        leaving=tuple(name for name in cluster.leaving if name not in gone),
        preparing=_only(cluster.preparing, names),
        unusable=_only(cluster.unusable, names),
        again=tuple(name for name in cluster.again if name in names),
        idle=_only(cluster.idle, names),
    )


def _shrunk(cluster: StoredCluster, uses: Sequence[NodeUse], busy: set[str]) -> StoredCluster:
    staying = _staying(cluster)
    surplus = len(staying) - (cluster.target or 0)
    if surplus <= 0:
        return cluster
    latest = {name: use.number for use in uses for name in use.nodes}

    def rank(place: int) -> tuple[bool, bool, int, float, int]:
        """Puts unusable ones first, then those idle longest, then those of the latest jobs, then the last to come."""
        name = staying[place]
        return name not in cluster.unusable, name in busy, -latest.get(name, 0), cluster.idle.get(name, 0.0), -place

    order = [staying[place] for place in sorted(range(len(staying)), key=rank)]
    return evolve(cluster, leaving=(*cluster.leaving, *order[:surplus]))


def wishes(cluster: StoredCluster, uses: Sequence[NodeUse]) -> list[Wish]:
    """Returns which jobs must give up their nodes because these leave."""
    option = cluster.scale.get("manual", {}).get("nodeDeallocationOption", DeallocationOption.REQUEUE)
    if option == DeallocationOption.WAIT or "autoScale" in cluster.scale:
        return []
    leaving = set(cluster.leaving)
    return [Wish(use.id, option) for use in uses if leaving.intersection(use.nodes)]


def _grown(cluster: StoredCluster, now: float) -> StoredCluster:
    target, staying = cluster.target or 0, len(cluster.names) - len(cluster.leaving)
    kept = min(len(cluster.leaving), max(0, target - staying))  # those that were about to leave stay first
    numbers = range(cluster.next, cluster.next + max(0, target - staying - kept))
    new = tuple(node_name(cluster.id, number, now) for number in numbers)
    return evolve(
        cluster,
        leaving=cluster.leaving[: len(cluster.leaving) - kept],
        names=(*cluster.names, *new),
        preparing={**cluster.preparing, **dict.fromkeys(new, "")},
        next=cluster.next + len(new),
    )


def _set_aside(cluster: StoredCluster, busy: set[str], limit: int, broken: Mapping[str, str]) -> StoredCluster:
    """Withholds as many idle nodes from jobs as the engine lacks working ones; busy nodes are left alone."""
    cluster = evolve(cluster, broken={})
    lacking = len(cluster.names) - (limit - len(broken))
    idle = free(cluster, busy)
    chosen = idle[max(0, len(idle) - lacking) :] if lacking > 0 else []
    told = dict(zip(chosen, (f"{name} is {why}" for name, why in broken.items()), strict=False))
    errors = [documents.error("NodeUnusable", f"The engine's node {why}.", Node=name) for name, why in told.items()]
    return _with_errors(evolve(cluster, broken=told), "NodeUnusable", errors)


def node_name(cluster: str, number: int, now: float) -> str:
    """Returns a node's name as Batch AI's logs show it: pool, number from 1, time of its arrival."""
    pool = zlib.crc32(cluster.lower().encode()) % 900_000_000 + 100_000_000
    stamp = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%dt%H%M%Sz")
    return f"tvm-{pool}_{number}-{stamp}-p"


def _without(values: Mapping[str, T], name: str) -> Mapping[str, T]:
    return {key: value for key, value in values.items() if key != name}


def ready(cluster: StoredCluster, name: str, now: float) -> StoredCluster:
    """Notes that a node may be used."""
    return evolve(cluster, preparing=_without(cluster.preparing, name), idle={**cluster.idle, name: now})


def begun(cluster: StoredCluster, name: str, handle: str) -> StoredCluster:
    """Notes that a node's setup runs, perhaps after one that did not start or was lost."""
    return evolve(
        cluster,
        preparing={**cluster.preparing, name: handle},
        unusable=_without(cluster.unusable, name),
        again=tuple(known for known in cluster.again if known != name),
    )


def dropped(cluster: StoredCluster, name: str) -> StoredCluster:
    """Notes that a node's setup does not run any more."""
    return evolve(cluster, preparing=_without(cluster.preparing, name))


def unusable(cluster: StoredCluster, name: str, message: str, *, again: bool = False) -> StoredCluster:
    """Notes that a node's setup failed.

    Args:
        cluster: the cluster.
        name: the node.
        message: why.
        again: whether another try may succeed: the command did not start, or was lost.
    """
    error = documents.error(_SETUP, message, Node=name)
    return evolve(
        dropped(cluster, name),
        unusable={**cluster.unusable, name: message},
        again=(*cluster.again, *([name] if again else [])),
        errors=(*(cluster.errors or ()), error),
    )


def lost(cluster: StoredCluster, name: str) -> StoredCluster:
    """Notes that a node went down: a low-priority node is removed, any other one starts again."""
    if name not in cluster.names or name in cluster.leaving:
        return cluster
    cluster = evolve(cluster, idle=_without(cluster.idle, name))
    if cluster.is_low_priority:
        return evolve(cluster, names=tuple(known for known in cluster.names if known != name))
    return begun(cluster, name, "")


def free(cluster: StoredCluster, busy: set[str]) -> list[str]:
    """Returns the names of the nodes that a job may be given, in the order in which they came."""
    taken = busy.union(cluster.leaving, cluster.preparing, cluster.unusable, cluster.broken)
    return [name for name in cluster.names if name not in taken]


def counted(cluster: StoredCluster, busy: set[str], now: float) -> StoredCluster:
    """Returns a cluster with the counts of its nodes, and whether it is at rest."""
    counts = dict.fromkeys(ClusterNodeState, 0)
    for state in states(cluster, busy).values():
        counts[state] += 1
    idle = {name: cluster.idle.get(name, now) for name in free(cluster, busy)}
    shown = {f"{state}NodeCount": number for state, number in counts.items()}
    return _allocated(evolve(cluster, idle=idle, counts=shown), now)


def _allocated(cluster: StoredCluster, now: float) -> StoredCluster:
    steady = len(cluster.names) == cluster.target and not cluster.preparing and not cluster.leaving
    state = AllocationState.STEADY if steady else AllocationState.RESIZING
    if cluster.allocation == state:
        return cluster
    return evolve(cluster, allocation=state, changed=write_moment(now))


def states(cluster: StoredCluster, busy: set[str]) -> dict[str, ClusterNodeState]:
    """Returns what each node of a cluster does, by name in the order in which they came."""
    return {name: _state(cluster, name, busy) for name in cluster.names}


def _state(cluster: StoredCluster, name: str, busy: set[str]) -> ClusterNodeState:
    if name in cluster.leaving:
        return ClusterNodeState.LEAVING
    if name in cluster.preparing:
        return ClusterNodeState.PREPARING
    if name in cluster.unusable or name in cluster.broken:
        return ClusterNodeState.UNUSABLE
    return ClusterNodeState.RUNNING if name in busy else ClusterNodeState.IDLE
