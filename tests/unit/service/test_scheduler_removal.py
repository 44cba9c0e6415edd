"""What is being deleted goes from the bottom up, and only after its processes have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.world import EXPERIMENT, GROUP, WORKSPACE, World

MOUNTED = "$AZ_BATCHAI_JOB_MOUNT_ROOT/ablage ü"


@pytest.fixture
def world(tmp_path: Path) -> World:
    root = tmp_path / "wurzel ü"
    root.mkdir()
    return World(root)


def ready(world: World, nodes: int = 4, **properties: Any) -> None:
    world.cluster(nodes=nodes, **properties)
    world.tick(3)


def test_deleting_a_running_job_ends_its_processes_first(world: World) -> None:
    world.engine.stubborn = True
    ready(world)
    world.job("j", nodes=2)
    world.tick()
    folder = Path(world.handle("j"))
    assert folder.is_dir()
    world.delete(f"{EXPERIMENT}/jobs/j")
    world.tick(2)
    assert world.of("j").document["properties"]["executionState"] == "running"
    world.end("j", "cancelled", reason="cancelled")
    world.tick()
    assert world.store.get(f"{EXPERIMENT}/jobs/j") is None
    assert not folder.exists()  # and with it task.json, which held the secrets


def test_deleting_a_group_goes_from_the_bottom_up(world: World) -> None:
    ready(world)
    for name in ("j", "k"):
        world.job(name, nodes=2)
    world.tick()
    world.delete(GROUP)
    world.tick()
    assert not world.engine.running()
    world.tick(2)
    assert world.store.list("groups") == world.store.list("jobs") == world.store.list("clusters") == []
    assert not (world.root / "shares" / "acc").exists()


def test_storage_of_a_group_stays_until_its_jobs_have_ended(world: World) -> None:
    world.engine.stubborn = True
    ready(world)
    world.job("j")
    world.tick()
    world.delete(GROUP)
    world.tick(2)
    assert (world.root / "shares" / "acc" / "share").is_dir()
    assert world.scheduler.active


def test_deleting_a_cluster_ends_its_jobs(world: World) -> None:
    ready(world, nodes=1)
    world.job("j")
    world.job("k")
    world.tick()
    world.delete(f"{WORKSPACE}/clusters/c")
    world.tick(3)
    assert world.store.get(f"{WORKSPACE}/clusters/c") is None
    for name in ("j", "k"):
        assert (world.state(name), world.error(name)[0]) == ("failed", "JobTerminated")
