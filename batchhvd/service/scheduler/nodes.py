"""How the nodes of a cluster come, work and go. Pure: it changes the two documents of a cluster and nothing else.

What is kept in a cluster's private document:

    names       all nodes it has, in the order in which they came
    target      how many it should have
    preparing   name -> handle of the node's setup task, "" where there is none
    leaving     names of the nodes that go as soon as they are free
    unusable    name -> why its setup failed
    broken      name -> which machine of the engine takes no tasks, and why; so many nodes less can be given
    idle        name -> since when it has nothing to do
    next        the number of the next node
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from attrs import frozen

from batchhvd.wire.facts.times import write_moment

IDLE_SECONDS = 60.0  # how long an automatically scaled cluster keeps a node that has nothing to do
Document = dict[str, Any]


@frozen
class Use:
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
        action: ``"requeue"`` or ``"terminate"``.
    """

    id: str
    action: str


def advance(
    document: Document,
    private: Document,
    uses: Sequence[Use],
    now: float,
    limit: int,
    broken: Mapping[str, str] | None = None,
) -> list[Wish]:
    """Moves a cluster one step towards its scale settings and returns which jobs must give up their nodes.

    Args:
        document: the cluster as GET shows it; its counts always add up.
        private: what the cluster keeps.
        uses: the jobs that want or have its nodes.
        now: seconds since 1970.
        limit: how many nodes the engine has.
        broken: those of them that take no tasks, and why.
    """
    properties = document["properties"]
    busy = {name for use in uses for name in use.nodes}
    _depart(private, busy)
    private["target"] = min(limit, target(properties, private, uses, busy, now))
    _report_limit(properties, private, limit)
    wishes = _shrink(properties, private, uses, busy)
    _grow(document, private, now)
    _set_aside(properties, private, busy, limit, broken or {})
    count(properties, private, busy, now)
    return wishes


def target(properties: Document, private: Document, uses: Sequence[Use], busy: set[str], now: float) -> int:
    """Returns how many nodes a cluster should have now."""
    scale = properties["scaleSettings"]
    if "manual" in scale:
        return int(scale["manual"]["targetNodeCount"])
    least, most = int(scale["autoScale"]["minimumNodeCount"]), int(scale["autoScale"]["maximumNodeCount"])
    if "target" not in private:
        return min(most, max(least, int(scale["autoScale"].get("initialNodeCount", 0))))
    wanted = min(most, max(least, sum(use.needs for use in uses if use.needs <= most)))
    staying = [name for name in private["names"] if name not in private.get("leaving", ())]
    rested = [n for n in staying if n not in busy and now - private.get("idle", {}).get(n, now) >= IDLE_SECONDS]
    return max(wanted, min(most, len(staying) - len(rested)))


def _report_limit(properties: Document, private: Document, limit: int) -> None:
    asked = properties["scaleSettings"].get("manual", {}).get("targetNodeCount", 0)
    errors = [error for error in properties.get("errors", ()) if error["code"] != "NotEnoughNodes"]
    if asked > limit:
        message = f"The engine has {limit} nodes at most; the cluster asked for {asked}."
        errors.append({"code": "NotEnoughNodes", "message": message, "details": []})
    if errors or "errors" in properties:
        properties["errors"] = errors


def _depart(private: Document, busy: set[str]) -> None:
    """Takes the leaving nodes that nothing uses any more out of the cluster."""
    gone = {name for name in private.setdefault("leaving", []) if name not in busy}
    for kind in ("names", "leaving"):
        private[kind] = [name for name in private[kind] if name not in gone]
    for kind in ("preparing", "unusable", "idle"):
        private[kind] = {name: value for name, value in private.get(kind, {}).items() if name in private["names"]}


def _shrink(properties: Document, private: Document, uses: Sequence[Use], busy: set[str]) -> list[Wish]:
    staying = [name for name in private["names"] if name not in private["leaving"]]
    surplus = len(staying) - private["target"]
    if surplus <= 0:
        return _wishes(properties, private, uses)
    latest = {name: use.number for use in uses for name in use.nodes}
    idle = private["idle"]

    def rank(place: int) -> tuple[bool, bool, int, float, int]:
        """Puts those of no use first, then those idle longest, then those of the latest jobs, then the last to come."""
        name = staying[place]
        return name not in private["unusable"], name in busy, -latest.get(name, 0), idle.get(name, 0.0), -place

    order = [staying[place] for place in sorted(range(len(staying)), key=rank)]
    private["leaving"].extend(order[:surplus])
    return _wishes(properties, private, uses)


def _wishes(properties: Document, private: Document, uses: Sequence[Use]) -> list[Wish]:
    option = properties["scaleSettings"].get("manual", {}).get("nodeDeallocationOption", "requeue")
    if option == "waitforjobcompletion" or "autoScale" in properties["scaleSettings"]:
        return []
    leaving = set(private["leaving"])
    return [Wish(use.id, option) for use in uses if leaving.intersection(use.nodes)]


def _grow(document: Document, private: Document, now: float) -> None:
    staying = len(private["names"]) - len(private["leaving"])
    while private["leaving"] and staying < private["target"]:  # those that were about to leave stay first
        private["leaving"].pop()
        staying += 1
    for _ in range(private["target"] - staying):
        number = private.get("next", 1)
        private["next"] = number + 1
        name = node_name(document["id"], number, now)
        private["names"].append(name)
        private["preparing"][name] = ""


def _set_aside(properties: Document, private: Document, busy: set[str], limit: int, broken: Mapping[str, str]) -> None:
    """Keeps as many idle nodes from the jobs as the engine has too few that work; those that are busy stay so."""
    private["broken"] = {}
    lacking = len(private["names"]) - (limit - len(broken))
    idle = free(private, busy)
    chosen = idle[max(0, len(idle) - lacking) :] if lacking > 0 else []
    private["broken"] = dict(zip(chosen, (f"{name} is {why}" for name, why in broken.items()), strict=False))
    errors = [error for error in properties.get("errors", ()) if error["code"] != "NodeUnusable"]
    for name, why in private["broken"].items():
        details = [{"name": "Node", "value": name}]
        errors.append({"code": "NodeUnusable", "message": f"The engine's node {why}.", "details": details})
    if errors or "errors" in properties:
        properties["errors"] = errors


def node_name(cluster: str, number: int, now: float) -> str:
    """Returns a node's name as Batch AI's logs show it: pool, number from 1, time of its coming."""
    pool = zlib.crc32(cluster.lower().encode()) % 900_000_000 + 100_000_000
    stamp = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%dt%H%M%Sz")
    return f"tvm-{pool}_{number}-{stamp}-p"


def ready(private: Document, name: str, now: float) -> None:
    """Notes that a node may be used."""
    private["preparing"].pop(name, None)
    private["idle"][name] = now


def unusable(document: Document, private: Document, name: str, message: str) -> None:
    """Notes that a node's setup failed."""
    private["preparing"].pop(name, None)
    private["unusable"][name] = message
    error = {"code": "SetupTaskFailed", "message": message, "details": [{"name": "Node", "value": name}]}
    document["properties"].setdefault("errors", []).append(error)


def lost(document: Document, private: Document, name: str) -> None:
    """Notes that a node went down: one of low priority is taken away, another starts again."""
    if name not in private["names"] or name in private["leaving"]:
        return
    if document["properties"].get("vmPriority") == "lowpriority":
        private["names"].remove(name)
    else:
        private["preparing"][name] = ""
    private.get("idle", {}).pop(name, None)


def free(private: Mapping[str, Any], busy: set[str]) -> list[str]:
    """Returns the names of the nodes that a job may be given, in the order in which they came."""
    taken = busy | set(private["leaving"]) | set(private["preparing"]) | set(private["unusable"])
    taken |= set(private.get("broken", ()))
    return [name for name in private["names"] if name not in taken]


def count(properties: Document, private: Document, busy: set[str], now: float) -> None:
    """Writes the counts of the nodes and whether the cluster is at rest."""
    names, leaving = private["names"], private["leaving"]
    counts = dict.fromkeys(("running", "idle", "unusable", "preparing", "leaving"), 0)
    for state in states(private, busy).values():
        counts[state] += 1
    idle = free(private, busy)
    private["idle"] = {name: private.get("idle", {}).get(name, now) for name in idle}
    properties["currentNodeCount"] = len(names)
    properties["nodeStateCounts"] = {f"{state}NodeCount": number for state, number in counts.items()}
    steady = len(names) == private["target"] and not private["preparing"] and not leaving
    state = "steady" if steady else "resizing"
    if properties["allocationState"] != state:
        properties["allocationState"] = state
        properties["allocationStateTransitionTime"] = write_moment(now)


def states(private: Mapping[str, Any], busy: set[str]) -> dict[str, str]:
    """Returns what each node of a cluster does, by name in the order in which they came."""
    leaving = set(private.get("leaving", ()))
    return {name: _state(private, name, leaving, busy) for name in private["names"]}


def _state(private: Mapping[str, Any], name: str, leaving: set[str], busy: set[str]) -> str:
    if name in leaving:
        return "leaving"
    if name in private["preparing"]:
        return "preparing"
    if name in private["unusable"] or name in private.get("broken", ()):
        return "unusable"
    return "running" if name in busy else "idle"
