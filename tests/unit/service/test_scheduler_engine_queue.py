"""What the scheduler makes of an engine that has a queue, restarts and machines out of order of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from attrs import define, evolve, field

from batchhvd.engines.base import Status, Task
from batchhvd.errors import EngineBusyError
from tests.support.world import WORKSPACE, Memory, World


@define
class Queueing(Memory):
    """An engine whose tasks wait until they are let go, and some of whose machines are broken."""

    broken: dict[str, str] = field(factory=dict)

    def submit(self, task: Task) -> str:
        handle = super().submit(task)
        self.states[handle] = Status(state="queued", reason="it waits in the queue (Resources)")
        return handle

    def node_states(self) -> Mapping[str, str]:
        return self.broken


def on(engine: Memory, tmp_path: Path) -> World:
    """Returns a world with a cluster of four idle nodes."""
    root = tmp_path / "wurzel ü"
    root.mkdir()
    world = World(root, engine=engine)
    world.cluster(nodes=4)
    world.tick(3)
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return on(Queueing(limit=4), tmp_path)


def test_a_job_that_the_engine_keeps_waiting_is_queued_and_says_why(world: World) -> None:
    world.job("j", nodes=2)
    world.tick(2)
    assert world.state("j") == "queued"
    assert world.error("j") == ("Waiting", "It waits in the queue (Resources).")
    assert "startTime" not in world.info("j")
    assert world.counts() == {"running": 2, "idle": 2}


def test_it_runs_from_when_the_engine_has_started_it(world: World) -> None:
    world.job("j", nodes=2)
    world.tick(2)
    world.engine.states[world.handle("j")] = Status(state="running", started=1_800_000_100.0)
    world.tick()
    assert world.state("j") == "running"
    assert world.info("j") == {"startTime": "2027-01-15T08:01:40.000Z"}


def test_a_run_that_the_engine_starts_again_waits_once_more_and_counts_its_attempts(world: World) -> None:
    world.job("j", nodes=2)
    world.tick()
    handle = world.handle("j")
    world.engine.states[handle] = Status(state="running", started=1.0)
    world.tick()
    again = Status(state="queued", reason="it waits in the queue (BeginTime)", attempt=2)
    world.engine.states[handle] = again
    world.tick()
    assert world.state("j") == "queued"
    world.engine.states[handle] = evolve(again, state="failed", reason="rank", exit_code=3)
    world.tick()
    details = world.info("j")["errors"][0]["details"]
    assert {"name": "Attempt", "value": "2"} in details


def test_a_waiting_run_is_cancelled_with_the_engine(world: World) -> None:
    world.job("j")
    world.tick()
    world.terminate("j")
    world.tick(2)
    assert world.engine.cancelled == [world.handle("j")]
    assert (world.state("j"), world.error("j")[0]) == ("failed", "JobTerminated")


def test_machines_out_of_order_make_idle_nodes_unusable_with_their_reason(world: World) -> None:
    world.engine.broken = {"node3": "drained: new cables"}
    world.tick()
    cluster = world.store.get(f"{WORKSPACE}/clusters/c")
    assert cluster is not None
    assert world.counts() == {"idle": 3, "unusable": 1}
    assert [e["message"] for e in cluster.document["properties"]["errors"]] == [
        "The engine's node node3 is drained: new cables."
    ]
    world.job("large", nodes=4)
    world.tick(2)
    assert (world.state("large"), world.error("large")[0]) == ("queued", "Waiting")
    world.engine.broken = {}
    world.tick(2)
    assert world.counts() == {"running": 4}
    assert world.engine.running()[0].nodes == tuple(cluster.private["names"])


def test_machines_that_fail_take_no_node_from_a_job_that_has_it(world: World) -> None:
    world.job("j", nodes=4)
    world.tick()
    world.engine.broken = {"node1": "draining"}
    world.tick(2)
    assert world.counts() == {"running": 4}
    assert world.engine.cancelled == []


def test_more_machines_than_the_cluster_needs_make_up_for_broken_ones(world: World) -> None:
    world.engine.limit, world.engine.broken = 6, {"a": "down", "b": "down"}
    world.tick()
    assert world.counts() == {"idle": 4}


@define
class Refusing(Memory):
    """An engine that takes only so many tasks for now, as Slurm with a limit on submitted jobs."""

    room: int = 0
    tries: int = 0
    is_silent: bool = False

    def submit(self, task: Task) -> str:
        self.tries += 1
        if self.room <= 0:
            raise EngineBusyError("Slurm takes no job at the moment: QOSMaxSubmitJobPerUserLimit", engine="slurm")
        self.room -= 1
        return super().submit(task)

    def find(self, folder: str) -> str | None:
        if self.is_silent:
            raise EngineBusyError("it is not known whether Slurm has accepted the job", engine="slurm")
        return None


@pytest.fixture
def refusing(tmp_path: Path) -> World:
    return on(Refusing(limit=4), tmp_path)


def test_jobs_that_the_engine_does_not_take_for_now_stay_queued_and_say_why(refusing: World) -> None:
    for name in "abc":
        refusing.job(name)
    refusing.tick(50)
    assert {refusing.state(name) for name in "abc"} == {"queued"}
    reason = "The job is not started yet: Slurm takes no job at the moment: QOSMaxSubmitJobPerUserLimit."
    assert {refusing.error(name) for name in "abc"} == {("Waiting", reason)}
    refusing.engine.room = 3
    refusing.tick(2, seconds=31)
    assert {refusing.state(name) for name in "abc"} == {"running"}


def test_the_engine_is_asked_more_and_more_seldom(refusing: World) -> None:
    refusing.job("a")
    refusing.job("b")
    refusing.tick()
    counts = []
    for _ in range(4):
        before = refusing.engine.tries
        refusing.tick(seconds=30)
        refusing.tick(3)
        counts.append(refusing.engine.tries - before)
    assert refusing.engine.tries <= 6
    assert counts[-1] <= 1


def test_one_job_that_is_taken_ends_the_pause_for_all(refusing: World) -> None:
    for name in "abc":
        refusing.job(name)
    refusing.tick()
    refusing.engine.room = 2
    refusing.tick(seconds=2)
    states = [refusing.state(name) for name in "abc"]
    assert sorted(states) == ["queued", "running", "running"]


def test_a_job_that_was_never_taken_gives_its_nodes_back_and_waits(refusing: World) -> None:
    refusing.job("a")
    refusing.tick()
    refusing.resize(0)
    refusing.tick(3)
    assert (refusing.state("a"), refusing.counts()) == ("queued", {})
    refusing.engine.room = 1
    refusing.resize(2)
    refusing.tick(5, seconds=31)
    assert refusing.state("a") == "running"
    assert "errors" not in refusing.info("a")


def test_a_job_of_which_nobody_knows_whether_it_runs_is_kept_until_somebody_does(refusing: World) -> None:
    refusing.job("a")
    refusing.tick()
    refusing.engine.is_silent = True
    refusing.resize(0)
    refusing.tick(3, seconds=40)
    assert refusing.state("a") == "queued"
    refusing.engine.is_silent = False
    refusing.tick(2)
    assert (refusing.state("a"), refusing.counts()) == ("queued", {})


def test_a_job_that_was_never_taken_can_be_terminated(refusing: World) -> None:
    refusing.job("a")
    refusing.tick()
    tries = refusing.engine.tries
    refusing.terminate("a")
    refusing.tick(2)
    assert (refusing.state("a"), refusing.error("a")[0]) == ("failed", "JobTerminated")
    assert refusing.engine.tries == tries
    assert not refusing.engine.running()
