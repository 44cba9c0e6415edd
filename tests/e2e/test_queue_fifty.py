"""Fifty real jobs on eight nodes start in the order that the rules say, and no node is ever used twice at once."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from batchhvd.service.scheduler import queue
from batchhvd.wire.facts.times import read_moment
from tests.support.faults import Live, live
from tests.support.world import Clock

NODES, JOBS = 8, 50
SPEED = 60.0  # how fast the scheduler's clock runs: a large job waits one real second before nodes are kept for it
ORDER = {"high": 0, "normal": 1, "low": 2}


@define
class Seen:
    """A job as it stood after a tick.

    Attributes:
        turn: its place in the order of the rules.
        needs: how many nodes it needs.
        queued: when it was queued.
        nodes: those that it holds.
        started: whether it was given them in this tick.
    """

    name: str
    turn: tuple[int, int]
    needs: int
    queued: float
    nodes: Sequence[str]
    started: bool


def look(world: Live, before: list[str]) -> list[Seen]:
    """Returns the jobs that have not ended, in the order of the rules."""
    found = []
    for job in world.store.active():
        name, properties = job.document["name"], job.document["properties"]
        turn, nodes = (ORDER[properties["schedulingPriority"]], job.number), job.private.get("nodes", ())
        queued = read_moment(properties["creationTime"]).timestamp()
        found.append(Seen(name, turn, properties["nodeCount"], queued, nodes, bool(nodes) and name not in before))
    return sorted(found, key=lambda seen: seen.turn)


def check(jobs: list[Seen], now: float) -> None:
    """What must be true after each tick, said in another way than the scheduler does it.

    A job that waits did not fit when its turn came: what is free now and what those behind it were given would not
    have been enough. Once one has waited for long, none behind it is given anything.
    """
    used = [node for job in jobs for node in job.nodes]
    assert len(used) == len(set(used)) <= NODES
    assert all(len(job.nodes) == job.needs for job in jobs if job.nodes)
    for at, job in enumerate(jobs):
        if not job.nodes:
            behind = [other for other in jobs[at + 1 :] if other.started]
            assert job.needs > NODES - len(used) + sum(other.needs for other in behind), (job, behind)
            if now - job.queued >= queue.PATIENCE:
                assert not behind, (job, behind)
                break


def spans(world: Live, name: str) -> Iterator[tuple[str, float, float]]:
    """Yields when each node of a job was in use, as its runner wrote it down."""
    for path in world.folder(name).glob("node-*.json"):
        record: dict[str, Any] = json.loads(path.read_text())
        yield record["node"], record["started"], record["ended"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "wurzel ü", nodes=NODES, clock=Clock(time.time())) as world:
        yield world


def add(world: Live, dice: random.Random, numbers: range) -> None:
    for number in numbers:
        command = {"commandLine": f"sleep {dice.choice([0.02, 0.1, 0.4])}"}
        priority = dice.choice(["normal"] * 6 + ["high", "low"])
        needs = dice.choice([1, 1, 2, 3, 4])
        world.job(f"j{number}", needs, customToolkitSettings=command, schedulingPriority=priority)


def test_fifty_jobs(world: Live) -> None:
    dice, half = random.Random(50), JOBS // 2
    add(world, dice, range(half))
    started: list[str] = []
    most, deadline, last = 0, time.monotonic() + 60, time.monotonic()
    while world.store.active():
        assert (now := time.monotonic()) < deadline, started
        world.tick(seconds=SPEED * (now - last))
        last, jobs = now, look(world, started)
        check(jobs, world.clock())
        started += [job.name for job in jobs if job.started]
        running = sum(len(job.nodes) for job in jobs)
        counts, most = world.counts(), max(most, running)
        assert (sum(counts.values()), counts.get("running", 0)) == (NODES, running)
        if len(started) > half // 2 and half < JOBS:
            add(world, dice, range(half, JOBS))
            half = JOBS
        time.sleep(0.02)
    assert len(started) == JOBS and most > NODES - 2
    assert {world.state(name) for name in started} == {"succeeded"}
    assert started != sorted(started, key=lambda name: int(name[1:]))  # small ones passed, high ones went first
    never_twice(world, started)


def never_twice(world: Live, names: list[str]) -> None:
    """The runners' own records agree: no two of them were on one node at one time."""
    uses: dict[str, list[tuple[float, float]]] = {}
    for name in names:
        for node, begun, ended in spans(world, name):
            uses.setdefault(node, []).append((begun, ended))
    assert len(uses) == NODES
    for times in uses.values():
        assert all(one[1] <= other[0] or other[1] <= one[0] for one, other in combinations(times, 2))
