"""Jobs: queued, running, ended, ended badly, started again, ended on request, deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from batchhvd.engines.base import Status
from batchhvd.errors import EngineError
from batchhvd.service.scheduler import task
from batchhvd.service.scheduler.tick import PATIENCE
from batchhvd.service.store.documents import JobProperties
from tests.support.world import WORKSPACE, Memory, World

MOUNTED = "$AZ_BATCHAI_JOB_MOUNT_ROOT/ablage ü"


@pytest.fixture
def world(tmp_path: Path) -> World:
    root = tmp_path / "wurzel ü"
    root.mkdir()
    return World(root)


def ready(world: World, nodes: int = 4, **properties: Any) -> None:
    world.cluster(nodes=nodes, **properties)
    world.tick(3)


def test_a_job_goes_from_queued_to_succeeded(world: World) -> None:
    ready(world)
    world.job("j", nodes=2)
    world.tick()
    assert world.state("j") == "running"
    assert world.counts() == {"running": 2, "idle": 2}
    assert "endTime" not in world.info("j")
    world.end("j")
    world.tick()
    assert world.state("j") == "succeeded"
    assert world.info("j")["exitCode"] == 0
    assert "errors" not in world.info("j")
    assert len(world.of("j").private["nodes"]) == 2  # where it ran can still be asked for
    assert world.counts() == {"idle": 4}


def test_the_node_counts_are_right_at_the_read_that_shows_a_job_running_or_ended(world: World) -> None:
    ready(world)
    world.job("j", nodes=4)
    world.tick()
    assert (world.state("j"), world.counts()) == ("running", {"running": 4})
    world.end("j", "failed", reason="rank", exit_code=1)
    world.tick()
    assert (world.state("j"), world.counts()) == ("failed", {"idle": 4})


@pytest.mark.parametrize(
    ("facts", "code", "text"),
    [
        (
            {"reason": "rank", "rank": 2, "exit_code": 3, "error": "rank 2 ended with exit code 3"},
            "RankFailed",
            "Rank 2",
        ),
        (
            {"reason": "memory", "rank": 0, "exit_code": 137, "error": "rank 0 was killed"},
            "OutOfMemory",
            "ran out of memory",
        ),
        ({"reason": "time", "error": "the job ran longer than 60 s"}, "WallClockLimit", "longer than 60 s"),
        ({"reason": "preparation", "exit_code": 100, "error": "the preparation ended"}, "JobPreparationFailed", "prep"),
        ({"reason": "script", "exit_code": 127, "error": "there is no file /x/y.py"}, "ScriptNotFound", "/x/y.py"),
        ({"reason": "node", "node": "n", "error": "the node is gone"}, "NodeLost", "gone"),
        ({"reason": "engine", "error": "no space left"}, "EngineFailed", "No space left"),
        ({"reason": "rank", "rank": 0, "tail": ("No module named 'horovod'",)}, "HorovodMissing", "trainer.install"),
        (
            {"reason": "rank", "rank": 0, "tail": ("batchhvd.errors.HorovodBrokenError: x",)},
            "HorovodBroken",
            "does not fit",
        ),
    ],
)
def test_each_failure_has_its_code(world: World, facts: dict[str, object], code: str, text: str) -> None:
    ready(world)
    world.job("j", nodes=4)
    world.tick()
    world.end("j", "failed", **facts)
    world.tick()
    assert world.state("j") == "failed"
    found, message = world.error("j")
    assert found == code
    assert text in message
    assert world.info("j").get("exitCode") == facts.get("exit_code")


def test_a_failure_names_rank_node_exit_code_signal_and_last_lines(world: World) -> None:
    ready(world)
    world.job("j", nodes=4)
    world.tick()
    world.end(
        "j", "failed", reason="rank", rank=1, node="tvm-x", exit_code=139, tail=("one", "two"), error="rank 1 ended"
    )
    world.tick()
    details = {entry["name"]: entry["value"] for entry in world.info("j")["errors"][0]["details"]}
    expected = {"Rank": "1", "Node": "tvm-x", "ExitCode": "139", "Signal": "11", "Attempt": "1", "Tail": "one\ntwo"}
    assert details == expected


def test_a_job_waits_with_its_reason(world: World) -> None:
    ready(world, nodes=2)
    world.job("large", nodes=4)
    world.job("first", nodes=2)
    world.job("second", nodes=1)
    world.tick()
    assert world.error("large") == ("Waiting", "The job needs 4 nodes; the cluster has 2: resize it.")
    assert world.state("first") == "running"
    assert world.error("second") == ("Waiting", "The job needs 1 node, of which 0 are free.")
    world.end("first")
    world.tick()
    assert world.state("second") == "running"
    assert "errors" not in world.info("second")


def test_a_reason_that_stays_is_written_once(world: World) -> None:
    ready(world, nodes=1)
    world.job("large", nodes=2)
    world.tick()
    changes = world.store._connection().total_changes
    world.tick(5, seconds=1)
    assert world.store._connection().total_changes == changes


def test_terminating_a_running_job_ends_it_first(world: World) -> None:
    world.engine.stubborn = True
    ready(world)
    world.job("j", nodes=4)
    world.tick()
    world.terminate("j")
    world.tick(3)
    assert world.state("j") == "terminating"
    assert world.counts() == {"running": 4}
    assert world.engine.cancelled == [world.handle("j")] * 3
    world.end("j", "cancelled", reason="cancelled")
    world.tick()
    assert world.state("j") == "failed"
    assert world.error("j")[0] == "JobTerminated"
    assert world.counts() == {"idle": 4}


def test_terminating_a_queued_job_fails_it_without_a_run(world: World) -> None:
    ready(world, nodes=1)
    world.job("j", nodes=1)
    world.terminate("j")
    world.tick()
    assert (world.state("j"), world.error("j")[0]) == ("failed", "JobTerminated")
    assert not world.engine.tasks


def test_a_job_that_succeeded_while_it_was_being_terminated_has_succeeded(world: World) -> None:
    ready(world)
    world.job("j")
    world.tick()
    world.terminate("j")
    world.end("j")
    world.tick()
    assert world.state("j") == "succeeded"


def test_a_lost_node_fails_a_job_of_a_dedicated_cluster(world: World) -> None:
    ready(world)
    world.job("j", nodes=4)
    world.tick()
    lost = world.of("j").private["nodes"][1]
    world.end("j", "failed", reason="node", node=lost, error="the node's runner ended with signal 9")
    world.tick()
    assert (world.state("j"), world.error("j")[0]) == ("failed", "NodeLost")
    assert world.counts() == {"preparing": 1, "idle": 3}
    world.tick(2)
    assert world.counts() == {"idle": 4}
    assert lost in world.store.get(f"{WORKSPACE}/clusters/c").private["names"]  # type: ignore[union-attr]


def test_an_eviction_queues_a_job_of_low_priority_nodes_again(world: World) -> None:
    ready(world, vmPriority="lowpriority")
    world.job("j", nodes=4)
    world.tick()
    first, lost = world.handle("j"), world.of("j").private["nodes"][0]
    world.end("j", "failed", reason="node", node=lost, error="evicted")
    world.tick()
    assert world.state("j") == "queued"
    code, message = world.error("j")
    assert code == "Waiting"
    assert "Attempt 1 ended: Evicted" in message
    world.tick(3)
    assert world.state("j") == "running"
    assert world.handle("j") != first
    assert lost not in world.of("j").private["nodes"]  # another node came in its place
    assert world.engine.running()[0].attempt == 2
    world.end("j")
    world.tick()
    assert world.state("j") == "succeeded"
    assert [entry["attempt"] for entry in world.of("j").private["history"]] == [1]


def test_a_job_that_asks_for_retries_gets_as_many(world: World) -> None:
    ready(world)
    world.job("j", environmentVariables=[{"name": "BATCHHVD_RETRIES", "value": "2"}])
    for attempt in (1, 2, 3):
        world.tick()
        assert world.of("j").private["attempt"] == attempt
        world.end("j", "failed", reason="rank", rank=0, exit_code=7, error="rank 0 ended with exit code 7")
        world.tick()
    assert world.state("j") == "failed"
    attempts = [{d["name"]: d["value"] for d in error["details"]}["Attempt"] for error in world.info("j")["errors"]]
    assert attempts == ["3", "1", "2"]


def test_a_job_that_ends_well_after_a_retry_keeps_its_history(world: World) -> None:
    ready(world)
    world.job("j", environmentVariables=[{"name": "BATCHHVD_RETRIES", "value": "1"}])
    world.tick()
    world.end("j", "failed", reason="rank", rank=0, exit_code=7, error="rank 0 ended with exit code 7")
    world.tick(2)
    world.end("j")
    world.tick()
    assert world.state("j") == "succeeded"
    (error,) = world.info("j")["errors"]
    assert {d["name"]: d["value"] for d in error["details"]}["ExitCode"] == "7"


def test_a_job_whose_mount_went_away_says_which(world: World) -> None:
    ready(world)
    (world.root / "shares" / "acc" / "share").rmdir()
    world.job("j")
    world.tick()
    assert (world.state("j"), world.error("j")) == (
        "failed",
        ("MountFailed", "The account acc has no share share any more."),
    )
    assert not world.engine.tasks


def test_a_job_whose_key_was_replaced_says_so(world: World) -> None:
    ready(world)
    world.job("j", private={"keys": {"acc": "b2xk"}})
    world.tick()
    assert world.error("j") == ("MountFailed", "The key given for the storage account acc is not valid any more.")


def test_a_missing_script_is_found_before_nodes_are_used(world: World) -> None:
    ready(world)
    path = f"{MOUNTED}/cifar/train.py"
    world.job("j", horovodSettings={"pythonScriptFilePath": path})
    world.tick()
    code, message = world.error("j")
    assert code == "ScriptNotFound"
    assert path in message
    assert not world.engine.tasks
    preparation = {"commandLine": "fetch it"}
    world.job("k", horovodSettings={"pythonScriptFilePath": path}, jobPreparation=preparation)
    world.tick()
    assert world.state("k") == "running"  # the preparation may bring it; the node looks again


def test_a_job_that_the_engine_refuses_fails_with_its_words(world: World) -> None:
    ready(world)
    world.engine.refuses = "the engine has no mpirun"
    world.job("j")
    world.tick()
    assert (world.state("j"), world.error("j")[0]) == ("failed", "EngineFailed")
    assert "no mpirun" in world.error("j")[1]
    world.tick()
    assert world.counts() == {"idle": 4}


def test_outputs_are_sealed_before_success_is_said(world: World) -> None:
    ready(world)
    world.job("j", outputDirectories=[{"id": "M", "pathPrefix": MOUNTED, "pathSuffix": "modell ü"}])
    world.tick()
    segment = world.root / "shares/acc/share" / world.of("j").document["properties"]["jobOutputDirectoryPathSegment"]
    (segment / "stdouterr" / "stdout.txt").write_text("hi\n")
    (segment / "outputs" / "modell ü" / "w.h5").write_bytes(b"\0" * 10)
    world.end("j")
    world.tick()
    files = json.loads((segment / "manifest.json").read_text())["files"]
    sizes = {"outputs/modell ü/w.h5": 10, "stdouterr/stderr.txt": 0, "stdouterr/stdout.txt": 3}
    assert {name: facts["size"] for name, facts in files.items()} == sizes
    assert files["stdouterr/stdout.txt"]["sha256"].startswith("98ea6e4f216f2fb4")
    assert sorted(path.name for path in segment.iterdir()) == ["manifest.json", "outputs", "stdouterr"]


def test_outputs_that_cannot_be_sealed_are_no_success(world: World) -> None:
    ready(world)
    world.job("j")
    world.tick()
    segment = world.root / "shares/acc/share" / world.of("j").document["properties"]["jobOutputDirectoryPathSegment"]
    (segment / "manifest.json").mkdir()
    world.end("j")
    world.tick()
    assert world.state("j") == "failed"
    assert "could not be sealed" in world.error("j")[1]


def test_a_job_given_its_nodes_before_a_kill_is_submitted_after_it(world: World) -> None:
    class Killed(BaseException):
        """The service is killed at this point."""

    class Fragile(Memory):
        def submit(self, task: object) -> str:
            super().submit(task)  # type: ignore[arg-type]
            raise Killed

    ready(world)
    sound, world.engine = world.engine, Fragile()
    world.restart()
    world.job("j", nodes=3)
    with pytest.raises(Killed):
        world.tick()
    assert world.state("j") == "queued"
    sound.tasks, sound.states = world.engine.tasks, world.engine.states
    world.engine = sound
    world.restart()
    world.tick()
    assert world.state("j") == "running"
    assert len(sound.tasks) == 1  # the run that was there, not another
    assert world.counts() == {"running": 3, "idle": 1}


def test_a_fresh_scheduler_goes_on_with_the_runs_of_the_old_one(world: World) -> None:
    ready(world)
    world.job("j", nodes=2)
    world.tick()
    world.restart()
    world.end("j")
    world.tick()
    assert world.state("j") == "succeeded"


def test_a_run_that_the_engine_does_not_know_any_more_is_lost(world: World) -> None:
    ready(world)
    world.job("j", nodes=2)
    world.tick()
    world.engine.states.clear()
    world.tick()
    assert (world.state("j"), world.error("j")[0]) == ("failed", "NodeLost")


class Spoilt(Memory):
    """Cannot answer for all runs at once as soon as one of them is asked for."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.spoilt = error, ""

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        if self.spoilt in handles:
            raise self.error
        return super().status(handles)


@pytest.mark.parametrize("error", [ValueError("not JSON"), KeyError("state"), RecursionError("deep")])
def test_a_run_with_damaged_records_fails_alone(world: World, error: Exception) -> None:
    world.engine = engine = Spoilt(error)
    world.restart()
    ready(world)
    world.job("j")
    world.job("k")
    world.tick()
    engine.spoilt = world.handle("j")
    world.end("k")
    world.tick()
    assert (world.state("j"), world.state("k")) == ("running", "succeeded")  # it may be healed by the next record
    world.clock.now += PATIENCE
    world.tick()
    assert world.state("j") == "failed"
    code, message = world.error("j")
    assert code == "EngineFailed" and str(error.args[0]) in message


def test_a_run_that_cannot_be_asked_about_for_now_goes_on(world: World) -> None:
    world.engine = engine = Spoilt(EngineError("the controller is away"))
    world.restart()
    ready(world)
    world.job("j")
    world.job("k")
    world.tick()
    engine.spoilt = world.handle("j")
    world.end("k")
    world.tick()
    assert (world.state("j"), world.state("k")) == ("running", "succeeded")
    engine.spoilt = ""
    world.end("j")
    world.tick()
    assert world.state("j") == "succeeded"


@pytest.mark.parametrize("value", ["²", "9" * 5000, "-1", "1e3", "", "٣"])
def test_a_number_of_retries_that_is_none_is_not_heeded(value: str) -> None:
    properties = {"environmentVariables": [{"name": "BATCHHVD_RETRIES", "value": value}]}
    assert task.retries(cast(JobProperties, properties)) is None


def test_one_job_that_cannot_be_followed_does_not_hold_up_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Memory):
        def cancel(self, handle: str) -> None:
            raise OSError("the disk is full")

    world.engine = Broken()
    world.restart()
    ready(world)
    world.job("j")
    world.job("k")
    world.tick()
    world.terminate("j")
    world.end("k")
    world.tick()
    assert (world.state("j"), world.state("k")) == ("terminating", "succeeded")
    assert "the disk is full" in caplog.text
