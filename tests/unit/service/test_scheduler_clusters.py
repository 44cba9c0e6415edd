"""Clusters: nodes come and go, by hand and by themselves, and their counts add up at every read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from batchhvd.service.scheduler.setup_task import AGAIN
from tests.support.world import WORKSPACE, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    root = tmp_path / "wurzel ü"
    root.mkdir()
    return World(root)


def private(world: World) -> dict[str, Any]:
    record = world.store.get(f"{WORKSPACE}/clusters/c")
    assert record is not None
    return record.private


def test_a_cluster_gets_its_nodes_and_comes_to_rest(world: World) -> None:
    world.cluster(nodes=3)
    assert (world.counts(), world.allocation()) == ({}, "resizing")
    world.tick()
    assert (world.counts(), world.allocation()) == ({"preparing": 3}, "resizing")
    world.tick()
    assert (world.counts(), world.allocation()) == ({"idle": 3}, "steady")
    assert not world.scheduler.active


def test_a_cluster_at_rest_is_not_written(world: World) -> None:
    world.cluster(nodes=3)
    world.tick(3)
    changes = world.store._connection().total_changes
    world.tick(5, seconds=10)
    assert world.store._connection().total_changes == changes


def test_nodes_are_named_as_batch_ai_named_them(world: World) -> None:
    world.cluster(nodes=2)
    world.tick()
    names = private(world)["names"]
    assert all(re.fullmatch(r"tvm-\d{9}_[12]-20270115t080000z-p", name) for name in names), names
    assert len({name.partition("_")[0] for name in names}) == 1


def test_shrinking_takes_idle_nodes_first(world: World) -> None:
    world.cluster(nodes=4)
    world.tick(2)
    world.job("j", nodes=2)
    world.tick()
    world.resize(2)
    world.tick(2)
    assert (world.counts(), world.allocation(), world.state("j")) == ({"running": 2}, "steady", "running")


def test_shrinking_with_requeue_puts_the_job_back(world: World) -> None:
    world.cluster(nodes=4)
    world.tick(2)
    world.job("j", nodes=4)
    world.tick()
    world.resize(2)
    world.tick()
    assert world.counts() == {"running": 2, "leaving": 2}
    world.tick(3)
    assert (world.state("j"), world.counts(), world.allocation()) == ("queued", {"idle": 2}, "steady")
    assert "Attempt 1 ended: Its nodes left the cluster" in world.error("j")[1]
    world.resize(4)
    world.tick(3)
    assert (world.state("j"), world.counts()) == ("running", {"running": 4})
    assert world.engine.running()[0].attempt == 2


def test_shrinking_with_terminate_ends_the_job(world: World) -> None:
    world.cluster(nodes=2)
    world.tick(2)
    world.job("j", nodes=2)
    world.tick()
    world.resize(0, "terminate")
    world.tick(4)
    assert (world.state("j"), world.error("j")[0], world.counts()) == ("failed", "JobTerminated", {})


def test_shrinking_may_wait_for_the_job(world: World) -> None:
    world.cluster(nodes=2)
    world.tick(2)
    world.job("j", nodes=2)
    world.job("k", nodes=1)
    world.tick()
    world.resize(0, "waitforjobcompletion")
    world.tick(5, seconds=100)
    assert (world.state("j"), world.counts(), world.allocation()) == ("running", {"leaving": 2}, "resizing")
    world.end("j")
    world.tick(2)
    assert (world.state("j"), world.state("k"), world.counts()) == ("succeeded", "queued", {})
    assert not world.engine.cancelled


def test_growing_again_keeps_nodes_that_were_about_to_leave(world: World) -> None:
    world.cluster(nodes=2)
    world.tick(2)
    world.job("j", nodes=2)
    world.tick()
    names = private(world)["names"]
    world.resize(0, "waitforjobcompletion")
    world.tick()
    world.resize(2)
    world.tick(2)
    assert (private(world)["names"], world.counts(), world.state("j")) == (names, {"running": 2}, "running")


def test_of_busy_nodes_those_of_the_latest_job_leave(world: World) -> None:
    world.cluster(nodes=2)
    world.tick(2)
    for name in ("old", "young"):
        world.job(name)
        world.tick()
    world.resize(1)
    world.tick(3)
    assert (world.state("old"), world.state("young")) == ("running", "queued")


def test_a_cluster_gets_no_more_nodes_than_the_engine_has(world: World) -> None:
    world.engine.limit = 2
    world.cluster(nodes=5)
    world.tick(3)
    record = world.store.get(f"{WORKSPACE}/clusters/c")
    assert record is not None
    assert (world.counts(), world.allocation()) == ({"idle": 2}, "steady")
    assert [error["code"] for error in record.document["properties"]["errors"]] == ["NotEnoughNodes"]


AUTO = {"autoScale": {"minimumNodeCount": 1, "maximumNodeCount": 4, "initialNodeCount": 2}}


def test_an_automatic_cluster_begins_small_grows_with_the_queue_and_shrinks_after_rest(world: World) -> None:
    world.cluster(scale=AUTO)
    world.tick(3)
    assert world.counts() == {"idle": 2}
    for name in ("j", "k"):
        world.job(name, nodes=2)
    world.tick(3)
    assert world.counts() == {"running": 4}
    world.end("j")
    world.tick(2, seconds=5)
    assert world.counts() == {"running": 2, "idle": 2}  # not at once
    world.tick(2, seconds=60)
    assert world.counts() == {"running": 2}
    world.end("k")
    world.tick(2)
    world.tick(3, seconds=60)
    assert (world.counts(), world.allocation()) == ({"idle": 1}, "steady")


def test_an_automatic_cluster_does_not_grow_beyond_its_maximum(world: World) -> None:
    world.cluster(scale=AUTO)
    for number in range(5):
        world.job(f"j{number}", nodes=3)
    for _ in range(6):
        world.tick()
        assert sum(world.counts().values()) <= 4
    assert world.counts() == {"running": 3, "idle": 1}


SETUP = {
    "setupTask": {
        "commandLine": "install it",
        "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/ext",
        "stdOutErrPathSuffix": "s/g/workspaces/w/clusters/c/one",
        "environmentVariables": [{"name": "OWN", "value": "x"}],
    },
    "mountVolumes": {
        "azureFileShares": [
            {
                "azureFileUrl": "https://acc.file.core.windows.net/share",
                "relativeMountPath": "ext",
                "accountName": "acc",
                "credentials": {},
            }
        ]
    },
}


def test_nodes_are_used_only_after_their_setup(world: World) -> None:
    world.cluster(nodes=2, nodeSetup=SETUP)
    world.job("j", nodes=2)
    world.tick(4)
    tasks = world.engine.running()
    assert (world.counts(), world.state("j"), len(tasks)) == ({"preparing": 2}, "queued", 2)
    assert {task.preparation for task in tasks} == {"install it"}
    assert tasks[0].environment["OWN"] == "x"
    assert tasks[0].logs.endswith("/clusters/c/one") and tasks[0].setup
    for task in tasks:
        world.engine.end(task.folder)
    world.tick(2)
    assert (world.counts(), world.state("j")) == ({"running": 2}, "running")


def test_a_node_whose_setup_fails_is_unusable_and_says_why(world: World) -> None:
    world.cluster(nodes=2, nodeSetup=SETUP)
    world.tick(2)
    first, second = world.engine.running()
    world.engine.end(first.folder, "failed", reason="preparation", error="the preparation ended with exit code 1")
    world.engine.end(second.folder)
    world.tick(2)
    record = world.store.get(f"{WORKSPACE}/clusters/c")
    assert record is not None
    assert (world.counts(), world.allocation()) == ({"idle": 1, "unusable": 1}, "steady")
    errors = record.document["properties"]["errors"]
    assert errors[0]["code"] == "SetupTaskFailed"
    assert errors[0]["details"] == [{"name": "Node", "value": first.nodes[0]}]
    world.resize(1)
    world.tick(2)
    assert world.counts() == {"idle": 1}  # the unusable one went first


def cluster_errors(world: World) -> list[str]:
    record = world.store.get(f"{WORKSPACE}/clusters/c")
    assert record is not None
    return [error["message"] for error in record.document["properties"].get("errors", [])]


def test_nodes_whose_mount_was_missing_are_set_up_once_it_is_back(world: World) -> None:
    share = world.root / "shares" / "acc" / "share"
    share.rename(share.with_name("away"))
    world.cluster(nodes=2, nodeSetup=SETUP)
    world.job("j")
    world.tick(3)
    assert world.counts() == {"unusable": 2}
    assert (
        len(cluster_errors(world)) == 2
        and "did not start: The account acc has no share share" in cluster_errors(world)[0]
    )
    world.tick(3, seconds=AGAIN)  # each try fails as the first one did, and says nothing new
    assert world.counts() == {"unusable": 2} and len(cluster_errors(world)) == 2
    share.with_name("away").rename(share)
    world.tick(seconds=1)
    assert world.counts() == {"unusable": 2}  # not at each tick
    world.tick(seconds=AGAIN)
    assert (world.counts(), cluster_errors(world)) == ({"preparing": 2}, [])
    for task in world.engine.running():
        world.engine.end(task.folder)
    world.tick(2)
    assert (world.counts(), world.state("j")) == ({"running": 1, "idle": 1}, "running")


def test_a_node_whose_setup_was_lost_is_set_up_again_in_a_new_folder(world: World) -> None:
    world.cluster(nodes=1, nodeSetup=SETUP)
    world.tick(2)
    (task,) = world.engine.running()
    (Path(task.folder) / "old").touch()
    world.engine.end(task.folder, "lost", reason="node", error="the runner was killed")
    world.tick()
    assert world.counts() == {"unusable": 1} and "the runner was killed" in cluster_errors(world)[0]
    world.restart()  # which knows nothing of the last try
    del world.engine.tasks[task.folder]
    world.tick()
    assert (world.counts(), cluster_errors(world)) == ({"preparing": 1}, [])
    assert not (Path(task.folder) / "old").exists()
    world.engine.end(task.folder)
    world.tick(2)
    assert world.counts() == {"idle": 1}


def test_a_node_whose_setup_command_failed_is_not_set_up_again(world: World) -> None:
    world.cluster(nodes=1, nodeSetup=SETUP)
    world.tick(2)
    (task,) = world.engine.running()
    world.engine.end(task.folder, "failed", reason="preparation", error="the preparation ended with exit code 1")
    world.tick(4, seconds=AGAIN)
    assert world.counts() == {"unusable": 1} and len(world.engine.tasks) == 1


def test_a_node_that_leaves_during_its_setup_ends_it(world: World) -> None:
    world.cluster(nodes=1, nodeSetup=SETUP)
    world.tick(2)
    world.resize(0)
    world.tick(4)
    assert world.engine.cancelled
    assert (world.counts(), world.allocation()) == ({}, "steady")


def test_counts_add_up_at_every_read_whatever_happens(world: World) -> None:
    import random

    generator = random.Random(5)
    world.cluster(nodes=4)
    for step in range(300):
        action = generator.choice(["job", "end", "fail", "resize", "lose", "terminate", "rest"])
        running = [job for job in world.store.active() if job.private.get("handle")]
        if action == "job":
            world.job(f"j{step}", nodes=generator.randint(1, 4))
        elif action == "resize":
            world.resize(generator.randint(0, 6), generator.choice(["requeue", "terminate", "waitforjobcompletion"]))
        elif running and action in ("end", "fail", "lose"):
            job = generator.choice(running)
            if world.engine.states[job.private["handle"]].state == "running":
                facts = {
                    "end": {},
                    "fail": {"reason": "rank"},
                    "lose": {"reason": "node", "node": job.private["nodes"][0]},
                }
                world.engine.end(job.private["handle"], "succeeded" if action == "end" else "failed", **facts[action])
        elif running and action == "terminate":
            world.terminate(generator.choice(running).document["name"])
        world.tick(seconds=1)
        world.counts()  # checks the sums
        used = [name for task in world.engine.running() for name in task.nodes]
        assert len(used) == len(set(used))
        assert len(used) <= len(private(world)["names"])


def test_a_cluster_that_cannot_be_moved_holds_up_no_other(world: World) -> None:
    broken = f"{WORKSPACE}/clusters/broken"
    world.cluster(nodes=1)
    good = world.store.get(f"{WORKSPACE}/clusters/c")
    assert good is not None
    # Made first in the order of the queue, with a record that no request could leave behind.
    world.store.delete(good.id)
    world.store.put(broken, "clusters", WORKSPACE, {**good.document, "id": broken}, {"nodes": "no record"})
    world.store.put(good.id, "clusters", WORKSPACE, good.document, good.private)
    world.tick(2)
    assert (world.counts(), world.allocation()) == ({"idle": 1}, "steady")


def test_the_jobs_of_a_cluster_that_cannot_be_read_are_left_alone(world: World) -> None:
    world.cluster(nodes=1)
    world.tick(2)
    world.job("j")
    world.tick()
    good = world.store.get(f"{WORKSPACE}/clusters/c")
    assert good is not None
    world.store.put(good.id, "clusters", WORKSPACE, good.document, {"nodes": "no record"})
    world.tick(2)
    assert world.state("j") == "running" and not world.engine.cancelled
    world.store.put(good.id, "clusters", WORKSPACE, good.document, good.private)
    world.end("j")
    world.tick()
    assert world.state("j") == "succeeded"
