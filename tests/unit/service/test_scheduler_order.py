"""Jobs that wait for other jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchhvd.wire.facts.job_variables import AFTER, EarlierJob, after, allowed, earlier_jobs
from tests.support.world import EXPERIMENT, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.cluster(nodes=4)
    made.tick(3)
    return made


def job(world: World, name: str, before: str, **more: int) -> None:
    world.job(name, environmentVariables=[{"name": AFTER, "value": before}], **more)  # type: ignore[arg-type]


def test_a_job_starts_when_all_before_it_have_succeeded(world: World) -> None:
    world.job("a")
    world.job("b")
    job(world, "c", "a,b")
    world.tick()
    assert world.error("c") == ("Waiting", "The job waits until a has succeeded and b has succeeded.")
    world.end("a")
    world.tick()
    assert world.state("c") == "queued"
    world.end("b")
    world.tick(2)
    assert world.state("c") == "running"


def test_what_waits_for_a_failed_job_fails_with_its_name_down_the_chain(world: World) -> None:
    world.job("a")
    job(world, "b", "a")
    job(world, "c", "b")
    job(world, "d", "a:ended")
    world.tick()
    world.end("a", "failed", reason="rank", rank=0, exit_code=3, error="rank 0 ended with exit code 3")
    world.tick(3)
    assert world.error("b") == ("EarlierJobFailed", "The job 'a', after which this one was to run, failed.")
    assert world.error("c") == ("EarlierJobFailed", "The job 'b', after which this one was to run, failed.")
    assert world.state("d") == "running"


def test_a_job_before_it_that_is_deleted_ends_the_wait(world: World) -> None:
    world.job("a", nodes=4)
    job(world, "b", "a")
    world.tick()
    world.delete(f"{EXPERIMENT}/jobs/a")
    world.tick(6, seconds=1)
    assert world.error("b") == ("EarlierJobFailed", "The job 'a', after which this one was to run, failed.")


def test_a_job_that_waits_for_another_holds_nobody_up_and_wants_no_node(tmp_path: Path) -> None:
    world = World(tmp_path)
    scale = {"autoScale": {"minimumNodeCount": 0, "maximumNodeCount": 4}}
    world.cluster(scale=scale)
    world.job("a")
    job(world, "b", "a", nodes=3)
    world.tick(5)
    assert world.state("a") == "running"
    assert world.counts() == {"running": 1}
    world.tick(3, seconds=120)
    world.job("c")
    world.tick(5)
    assert world.state("c") == "running"
    world.end("a")
    world.end("c")
    world.tick(8)
    assert world.state("b") == "running"


def test_a_restart_in_between_changes_nothing(world: World) -> None:
    world.job("a")
    job(world, "b", "a")
    world.tick()
    world.end("a")
    world.restart()
    world.tick(2)
    assert world.state("b") == "running"


def test_a_value_is_read_as_it_was_written() -> None:
    jobs = (EarlierJob("a-1", False), EarlierJob("b_2", True))
    assert after(jobs) == "a-1,b_2:ended"
    assert earlier_jobs(after(jobs)) == jobs
    assert earlier_jobs("") == earlier_jobs("a b") == ()
    assert allowed(AFTER, "a;b") == "names of jobs, such as 'first,second:ended'"
    assert allowed(AFTER, "a,,b") and allowed(AFTER, "é") and not allowed(AFTER, "a")
