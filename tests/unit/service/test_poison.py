"""Whatever one record, variable or answer of the engine holds, only that job suffers."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from batchhvd.engines.base import Status
from batchhvd.engines.slurm.answers import SlurmJob, job_of, nodes_of, readable
from batchhvd.engines.slurm.judge import judged
from batchhvd.engines.slurm.run import SlurmRun
from batchhvd.node.folder import records
from batchhvd.node.folder.durable import DamagedRecordError
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts import rules
from batchhvd.service.scheduler import task as environment
from batchhvd.service.scheduler.tick import PATIENCE
from batchhvd.wire.facts.job_variables import NUM_GPUS, RETRIES, STALL_ACTION, STALL_SECONDS
from tests.support.drilled import examples
from tests.support.world import EXPERIMENT, Memory, World

NAMES = [NUM_GPUS, RETRIES, STALL_ACTION, STALL_SECONDS]
ERRORS = [ValueError, KeyError, TypeError, RecursionError, AssertionError, OSError, ZeroDivisionError, MemoryError]


@define
class Poisoned(Memory):
    """An engine that raises for some runs, of whatever is asked about them."""

    errors: dict[str, Exception] = field(factory=dict)
    bad_start: dict[str, Exception] = field(factory=dict)

    def submit(self, task: Any) -> str:
        if task.name in self.bad_start:
            raise self.bad_start[task.name]
        return super().submit(task)

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        for handle in handles:
            if handle in self.errors:
                raise self.errors[handle]
        return super().status(handles)

    def cancel(self, handle: str) -> None:
        if handle in self.errors:
            raise self.errors[handle]
        super().cancel(handle)


def ready(root: Path, jobs: int = 11) -> World:
    """Returns a world in which jobs j0, j1, … run on a node each."""
    world = World(root, engine=Poisoned())
    world.cluster(nodes=jobs)
    world.tick(3)
    for number in range(jobs):
        world.job(f"j{number}")
    world.tick(2)
    return world


@given(error=st.sampled_from(ERRORS), text=st.text(max_size=20), ending=st.sampled_from(["", "terminate", "delete"]))
@examples(20, 300)
def test_an_engine_may_raise_whatever_it_likes_about_one_run(error: type[Exception], text: str, ending: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = ready(Path(folder))
        world.engine.errors[world.handle("j0")] = error(text)
        world.job("k")
        for number in range(1, 11):
            world.end(f"j{number}")
        world.tick(3, seconds=1)
        assert [world.state(f"j{number}") for number in range(1, 11)] == ["succeeded"] * 10
        assert world.state("k") == "running"
        if ending == "terminate":
            world.terminate("j0")
        elif ending == "delete":
            world.delete(f"{EXPERIMENT}/jobs/j0")
        world.tick(3, seconds=PATIENCE / 2)
        if ending == "delete":
            assert world.store.get(f"{EXPERIMENT}/jobs/j0") is None
        elif ending == "terminate":
            assert (world.state("j0"), world.error("j0")[0]) == ("failed", "JobTerminated")
        elif error is not OSError:  # a fault of the machine may pass
            assert (world.state("j0"), world.error("j0")[0]) == ("failed", "EngineFailed")
            assert error.__name__ in world.error("j0")[1]
        world.store.close()


@pytest.mark.parametrize("error", ERRORS)
def test_an_engine_may_raise_whatever_it_likes_at_the_start(tmp_path: Path, error: type[Exception]) -> None:
    world = World(tmp_path, engine=Poisoned(bad_start={"bad": error("no")}))
    world.cluster(nodes=3)
    world.tick(3)
    for name in ("bad", "good"):
        world.job(name)
    world.tick(2)
    assert (world.state("bad"), world.error("bad")[0], world.state("good")) == ("failed", "EngineFailed", "running")


VALUES = st.one_of(
    st.text(max_size=20), st.sampled_from(["²", "٣", "9" * 5000, "-1", "1e9", "nan", "inf", " 1", "1\n", "", "0", "7"])
)


@given(values=st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES)))
@examples(20, 300)
def test_a_job_may_give_a_variable_any_value(values: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = ready(Path(folder), jobs=10)
        world.job("bad", environmentVariables=[{"name": name, "value": value} for name, value in values.items()])
        world.resize(12)
        world.tick(4)
        task = world.engine.tasks[world.handle("bad")]
        assert task.stall_seconds is None or 0 < task.stall_seconds < 1e9
        assert str(int(task.environment[NUM_GPUS])).isascii()
        world.end("bad", "failed", reason="rank", exit_code=1)
        for number in range(10):
            world.end(f"j{number}")
        world.tick(2)
        assert world.state("bad") in ("failed", "queued", "running")  # it may have asked for another try
        assert [world.state(f"j{number}") for number in range(10)] == ["succeeded"] * 10
        refused = {p.pointer for p in rules.variable_problems(_holder(values), "")}
        ignored = {notice.split()[3] for notice in task.notices if "is ignored" in notice}
        assert {f"/environmentVariables/{NAMES.index(name)}/value" for name in ignored} <= refused
        world.store.close()


def _holder(values: dict[str, str]) -> Any:
    return {"environmentVariables": [{"name": name, "value": values[name]} for name in NAMES]}


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (RETRIES, "²", "must be a whole number of at most nine digits for the variable BATCHHVD_RETRIES"),
        (RETRIES, "9" * 5000, "whole number"),
        (STALL_SECONDS, "٣", "must be a number of seconds"),
        (STALL_ACTION, "Stop", "must be 'warn' or 'stop'"),
        (NUM_GPUS, "all", "whole number"),
        ("OWN", "a\0b", "without NUL characters, for the variable 'OWN'"),
        ("OWN", "\ud800", "must be a text"),
        ("A\0B", "", "must be a text without NUL characters"),
    ],
)
def test_a_value_that_the_service_cannot_interpret_is_refused_by_name(name: str, value: str, told: str) -> None:
    (problem,) = rules.variable_problems({"environmentVariables": [{"name": name, "value": value}]}, "/properties")
    assert told in problem.text


def test_an_old_job_with_such_a_value_runs_and_its_log_says_so() -> None:
    holder: Any = {"environmentVariables": [{"name": RETRIES, "value": "²"}, {"name": RETRIES, "value": "9" * 5000}]}
    assert environment.retries(holder) is None


STOP = {"reason": "rank", "node": "n", "rank": 0, "exit_code": 1, "error": "", "tail": []}
DAMAGED = [b"", b"{", b"\xff", b"[" * 100_000, b"[]", b'{"reason": 1}', json.dumps({**STOP, "rank": 1e400}).encode()]


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_stop_file_stops_the_task_and_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "stop.json").write_bytes(data)
    stop = records.read_stop(tmp_path)
    assert stop is not None and stop["reason"] == "engine" and "the record stop.json in" in stop["error"]
    assert not records.declare(tmp_path, "cancelled")


CONTENT = st.one_of(
    st.binary(max_size=200),
    st.sampled_from([b"[" * 100_000, b"{}", b"null", b"\xef\xbb\xbf{}"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from([*STOP, "state", "pid"]), part),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
)


@given(data=CONTENT)
@examples(100, 5000)
def test_whatever_is_in_a_record_it_is_right_or_damaged(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for record in ("node-0.json", "stop.json", "rendezvous.json", "task.json"):
            (folder / record).write_bytes(data)
        assert records.read_stop(folder) is not None
        for read in (lambda: records.read_node(folder, 0), lambda: records.read_meeting(folder)):
            with contextlib.suppress(DamagedRecordError):
                assert read() is not None
        with contextlib.suppress(DamagedRecordError):
            records.read_task(folder)


@pytest.mark.parametrize("kind", ["fifo", "folder", "link", "dangling", "device"])
@pytest.mark.timeout(20)
def test_what_is_no_plain_file_is_damaged_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "node-0.json"
    make: Any = {
        "fifo": os.mkfifo,
        "folder": os.mkdir,
        "link": lambda path: os.symlink("/etc/passwd", path),
        "dangling": lambda path: os.symlink("nowhere", path),
        "device": lambda path: os.symlink("/dev/zero", path),
    }[kind]
    make(path)
    with pytest.raises(DamagedRecordError, match="node-0.json"):
        records.read_node(tmp_path, 0)


@given(st.text(max_size=60))
def test_a_line_of_slurm_that_cannot_be_read_hides_no_other_job(line: str) -> None:
    good = "7|RUNNING|None|0|0|N/A|/f|"
    assert readable(job_of, f"{good}\n{line}")["7"].state == "RUNNING" or "7|" in line
    nodes_of([line, "main*|n|idle|none"], chosen=False)


def test_one_normalisation_of_paths() -> None:
    mount = mounts.MountPoint("AZ_BATCHAI_JOB_MOUNT_ROOT", "m", "acc", "share", "deep")
    for path in ("$AZ_BATCHAI_JOB_MOUNT_ROOT//m//a/", "${AZ_BATCHAI_JOB_MOUNT_ROOT}/./m/b/.././a".replace("b/../", "")):
        assert mounts.locate(path, [mount]) == (mount, "deep/a")
        assert environment.locate(path, {mount: Path("/s/deep")}) == Path("/s/deep/a")


@pytest.mark.parametrize("name", ["slurm.json", "node-0.json"])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"job": 1, "nodes": 2}'])
def test_a_run_of_slurm_with_a_damaged_file_fails_when_its_job_is_over(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / "slurm.json").write_text('{"job": "7", "nodes": ["a"]}')
    (tmp_path / name).write_bytes(data)
    run = SlurmRun.read(f"7 {tmp_path}")
    assert run.is_damaged and not run.is_final
    assert judged(run, {"7": SlurmJob("RUNNING")}).state == "running"
    assert judged(run, None).state in ("running", "preparing")  # the controller does not answer
    for jobs in ({"7": SlurmJob("CANCELLED")}, {}):
        status = judged(run, jobs)
        assert (status.state, status.reason) == ("failed", "engine") and name in status.error


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7"])
def test_a_job_whose_record_is_damaged_can_be_ended_and_deleted(tmp_path: Path, text: str) -> None:
    world = ready(tmp_path, jobs=2)
    key = f"{EXPERIMENT}/jobs/j0".lower()
    world.store._connection().execute("UPDATE resource SET private = ? WHERE key = ?", (text, key))
    world.end("j1")
    world.tick(2)
    assert world.state("j1") == "succeeded"
    world.terminate("j0")
    world.tick(2)
    assert (world.state("j0"), world.error("j0")[0]) == ("failed", "JobTerminated")
    world.delete(f"{EXPERIMENT}/jobs/j0")
    world.tick(2)
    assert world.store.get(f"{EXPERIMENT}/jobs/j0") is None
