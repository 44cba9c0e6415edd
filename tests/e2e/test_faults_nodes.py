"""Runners, guards and services that are killed: jobs end as they should, and nothing is left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchhvd.engines.processes import Processes
from batchhvd.node.processes import ticks
from batchhvd.service import drills
from tests.support.faults import Live, live, processes
from tests.support.waiting import until

# A rank with a grandchild in a session of its own; STUBBORN ones ignore that they are asked to end.
FOREVER = "setsid sleep 1000 & echo up; while true; do sleep 0.1; done"  # a grandchild in a session of its own


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "wurzel ü", patience=1.0) as world:
        yield world


def test_a_killed_runner_is_noticed_and_everything_of_the_job_ends(world: Live) -> None:
    world.command("j", FOREVER, nodes=3)
    world.up("j", 3)
    drills.kill_runner(world.folder("j"), 1)
    assert world.ended("j") == "failed"
    assert world.error("j")[0] == "NodeLost"
    assert "signal 9" in world.execution_log("j", 1)
    assert not processes(world.root)
    assert world.counts() in ({"idle": 3, "preparing": 1}, {"idle": 4})


def test_a_killed_guard_is_noticed_too(world: Live) -> None:
    world.command("j", FOREVER, nodes=2)
    world.up("j", 2)
    os.kill(world.node("j", 0)["guard"]["pid"], signal.SIGKILL)
    assert world.ended("j") == "failed"
    assert world.error("j")[0] == "NodeLost"


def test_an_evicted_node_leaves_nothing_and_the_job_starts_again_elsewhere(tmp_path: Path) -> None:
    with live(tmp_path / "wurzel ü", vmPriority="lowpriority") as world:
        first = f'case "$AZ_BATCHAI_SHARED_JOB_TEMP" in */1/shared) echo once; {FOREVER};; esac; echo again'
        world.command("j", first, nodes=2)
        world.ranks_run("j", 2)
        until(lambda: "once" in world.log("j"))
        lost = world.of("j").private["nodes"][0]
        drills.evict(world.folder("j"), 0)
        assert world.ended("j") == "succeeded"
        assert world.of("j").private["attempt"] == 2
        assert lost not in world.of("j").private["nodes"]
        assert world.log("j").splitlines().count("again") == 2  # both attempts wrote into the same logs


def test_guard_and_runner_killed_together_leave_nothing(world: Live) -> None:
    world.command("j", FOREVER, nodes=2)
    world.up("j", 2)
    record = world.node("j", 1)
    for pid in (record["guard"]["pid"], record["pid"]):
        os.kill(pid, signal.SIGKILL)
    assert world.ended("j") == "failed"
    assert world.error("j")[0] == "NodeLost"
    assert not processes(world.root)


def test_a_frozen_runner_is_killed_when_the_job_is_terminated(world: Live) -> None:
    world.command("j", FOREVER, nodes=2)
    world.up("j", 2)
    os.kill(world.node("j", 0)["pid"], signal.SIGSTOP)
    os.kill(world.node("j", 0)["guard"]["pid"], signal.SIGSTOP)
    world.terminate("j")
    assert world.ended("j") == "failed"
    assert world.error("j")[0] == "JobTerminated"
    assert not processes(world.root)


def test_runners_whose_folder_was_removed_end_with_all_they_started(world: Live) -> None:
    world.command("j", FOREVER, nodes=2)
    world.up("j", 2)
    shutil.rmtree(world.folder("j"))
    until(lambda: not processes(world.root), 10)
    assert world.ended("j") == "failed"
    assert world.error("j")[0] == "NodeLost"


def test_a_run_has_ended_only_when_its_guards_are_gone(world: Live) -> None:
    go = 'until [ -e "$AZ_BATCHAI_SHARED_JOB_TEMP/go" ]; do sleep 0.02; done'
    world.command("j", f"echo up; {go}", nodes=1)
    world.up("j", 1)
    guard = world.node("j", 0)["guard"]["pid"]
    os.kill(guard, signal.SIGSTOP)  # it hangs; it is killed when it has been waited for long enough
    (world.folder("j") / "shared" / "go").touch()
    assert world.ended("j") == "succeeded"
    assert ticks(guard) is None


def test_a_process_id_that_was_given_to_another_process_is_not_mistaken(world: Live) -> None:
    world.command("j", "exec sleep 60", nodes=1)
    world.ranks_run("j", 1)
    path = world.folder("j") / "node-0.json"
    record = json.loads(path.read_text())
    guard = record["guard"]["pid"]
    with subprocess.Popen(["sleep", "60"]) as another:
        record["guard"]["pid"] = another.pid  # as if the guard's number belonged to somebody else now
        path.write_text(json.dumps(record))
        assert world.ended("j") == "failed"
        assert world.error("j")[0] == "NodeLost"
        assert another.poll() is None
        another.kill()
    until(lambda: ticks(guard) is None)


def test_runs_go_on_without_the_service_and_a_fresh_one_follows_them(world: Live) -> None:
    world.command("long", "sleep 0.8; echo late; exit 0", nodes=2)
    world.command("bad", "sleep 0.3; exit 5", nodes=1)
    world.ranks_run("long", 2)
    world.ranks_run("bad", 1)
    world.engine = Processes()
    world.restart()
    until(lambda: all(world.node("long", index)["state"] == "ended" for index in (0, 1)))  # nobody looks meanwhile
    assert (world.ended("long"), world.ended("bad")) == ("succeeded", "failed")
    assert world.info("bad")["exitCode"] == 5
    assert world.log("long") == "late\nlate\n"
    assert world.info("long")["endTime"] <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))


def test_deleting_a_job_ends_its_processes_first(world: Live) -> None:
    world.command("j", FOREVER, nodes=2)
    world.up("j", 2)
    world.delete(world.of("j").id)
    id = world.of("j").id

    def gone() -> bool:
        world.tick()
        if world.store.get(id) is None:
            assert not processes(world.root)
            return True
        return False

    until(gone)


def test_a_drill_on_what_is_not_there_says_so(world: Live) -> None:
    from batchhvd.errors import EngineError, NotFoundError

    with pytest.raises(NotFoundError, match="the job /nowhere does not exist"):
        drills.find(world.root, "/nowhere")
    world.command("j", "true", nodes=1)
    assert world.ended("j") == "succeeded"
    folder = drills.find(world.root, world.of("j").id)
    with pytest.raises(EngineError, match="rank 0 .* is not running"):
        drills.kill_rank(folder, 0)
    with pytest.raises(EngineError, match="has ended"):
        drills.evict(folder, 0)


def test_a_share_that_is_full_gives_a_clear_error(world: Live) -> None:
    world.command("j", "while true; do seq 100; sleep 0.05; done", nodes=2)
    world.ranks_run("j", 2)
    until(lambda: len(world.log("j")) > 20)
    drills.fill(world.folder("j"), 4096)
    assert world.ended("j") == "failed"
    code, message = world.error("j")
    assert code == "EngineFailed"
    assert "File too large" in message


def test_a_broken_mount_is_seen_by_the_ranks_and_can_be_mended(world: Live) -> None:
    look = '[ -e "$AZ_BATCHAI_JOB_MOUNT_ROOT/ablage ü/j.py" ]'
    world.command(
        "j", f"echo up; while {look}; do sleep 0.05; done; echo broken; until {look}; do sleep 0.05; done; echo mended"
    )
    world.ranks_run("j", 1)
    until(lambda: "up" in world.log("j"))
    drills.break_mount(world.folder("j"), "ablage ü")
    until(lambda: "broken" in world.log("j"))
    drills.mend_mount(world.folder("j"), "ablage ü")
    assert world.ended("j") == "succeeded"
    assert world.log("j") == "up\nbroken\nmended\n"
