"""Runs that an earlier batchhvd started are understood: how they stand, how they end, and how they are ended.

``tests/data/upgrade/runs.json`` has what commit 1382976 wrote, when the node runner was a single file: for each case
the files of the task's folder (ROOT stands for the folder above it) and the status that its own code read from them.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict

from batchhvd.engines.base import ENDED, Status, Task
from batchhvd.engines.processes import Processes
from batchhvd.engines.slurm import Slurm
from batchhvd.node.processes import ticks
from tests.support.waiting import until

RUNS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data/upgrade/runs.json").read_text(encoding="utf-8"))

# What the earlier runner did of its own accord: on seeing stop.json it ended its ranks and completed its record.
EARLIER_RUNNER = """
import json, os, pathlib, sys, time

folder, index = pathlib.Path(sys.argv[1]), sys.argv[2]
path, stop = folder / f"node-{index}.json", folder / "stop.json"
while not stop.exists():
    time.sleep(0.02)
words = json.loads(stop.read_text())
record = json.loads(path.read_text())
record |= {"state": "ended", "ended": time.time(), "reason": words["reason"], "error": words["error"]}
for rank in record["ranks"]:
    rank |= {"ended": time.time(), "exit": 143, "signal": 15}
scratch = path.with_suffix(".tmp")
scratch.write_text(json.dumps(record))
scratch.replace(path)
"""


def restore(case: str, root: Path) -> Path:
    """Writes the files of a case below a root and returns the task's folder."""
    files = RUNS[case]["files"]
    folder = Path(files["task.json"]["folder"].replace("ROOT", str(root)))
    folder.mkdir(parents=True)
    (root / "logs").mkdir(exist_ok=True)
    for name, document in files.items():
        (folder / name).write_text(json.dumps(document).replace("ROOT", str(root)), encoding="utf-8")
    return folder


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A run of the processes engine whose runners are alive: stand-ins with the records of earlier ones."""
    folder = restore("processes: running", tmp_path)
    runners = [stand_in(folder, index, [sys.executable, "-c", EARLIER_RUNNER]) for index in (0, 1)]
    yield folder
    end(runners)


@pytest.fixture
def stubborn(tmp_path: Path) -> Iterator[Path]:
    """The same, but its runners do not heed that they are to end."""
    folder = restore("processes: running", tmp_path)
    runners = [stand_in(folder, index, ["sh", "-c", "trap '' TERM; sleep 1000 & wait; wait"]) for index in (0, 1)]
    yield folder
    end(runners)


def stand_in(folder: Path, index: int, command: list[str]) -> subprocess.Popen[bytes]:
    """Starts what takes the place of a node's guard and runner, and names it in the node's record."""
    mark = {"BATCHHVD_NODE": f"{folder}:{index}"}
    process = subprocess.Popen([*command, str(folder), str(index)], env={**os.environ, **mark}, start_new_session=True)
    path = folder / f"node-{index}.json"
    own = {"pid": process.pid, "ticks": ticks(process.pid)}
    path.write_text(json.dumps({**json.loads(path.read_text()), **own, "guard": own}))
    return process


def end(runners: list[subprocess.Popen[bytes]]) -> None:
    for runner in runners:
        if runner.poll() is None:
            os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()


def as_before(case: str) -> dict[str, object]:
    """Returns what was told of a run, with what has come since: a run that has ended has no advice."""
    return {"advice": "", **RUNS[case]["status"]}


def status(folder: Path, engine: Processes | None = None) -> Status:
    engine = engine or Processes()
    return engine.status([str(folder)])[str(folder)]


@pytest.mark.parametrize(
    "case", [name for name, case in RUNS.items() if name.startswith("processes") and case["status"]["state"] in ENDED]
)
def test_how_a_run_ended_is_told_as_before(case: str, tmp_path: Path) -> None:
    assert json.loads(json.dumps(asdict(status(restore(case, tmp_path))))) == as_before(case)


def test_a_run_goes_on_and_is_not_started_again(running: Path) -> None:
    assert status(running).state == "running"
    before = {path.name for path in running.iterdir()}
    assert Processes().submit(Task.read(running)) == str(running)
    assert {path.name for path in running.iterdir()} == before
    assert status(running).state == "running"


def test_its_runners_understand_a_cancellation(running: Path) -> None:
    Processes().cancel(str(running))
    written = json.loads((running / "stop.json").read_text())
    assert written == RUNS["processes: cancelled"]["files"]["stop.json"]
    until(lambda: status(running).state in ENDED)
    found = status(running)
    assert (found.state, found.reason, found.error) == ("cancelled", "cancelled", "the job was terminated")


def test_runners_that_do_not_heed_are_killed(stubborn: Path) -> None:
    engine = Processes(patience=0.3)

    def ended() -> bool:
        engine.cancel(str(stubborn))
        return status(stubborn, engine).state in ENDED

    until(ended)
    assert status(stubborn, engine).state == "cancelled"


def test_runners_that_are_gone_are_a_lost_node(tmp_path: Path) -> None:
    found = status(restore("processes: running", tmp_path))
    assert (found.state, found.reason, found.node) == ("failed", "node", "tvm-7_1-p")
    assert found.error == "the node's runner ended with signal 9"


# -- Slurm --


@pytest.fixture
def bin(tmp_path: Path) -> Path:
    """A folder with an sbatch that must not be used, and a squeue of which each job runs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    lines = "\n".join(f'echo "{job}|RUNNING|None|0|0|Unknown|{tmp_path}|"' for job in (1, 2))
    for name, commands in {"sbatch": "exit 9", "squeue": lines, "scancel": f"echo $1 >> {tmp_path}/ended"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{commands}\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("case", ["slurm: failed", "slurm: succeeded"])
def test_how_a_run_of_slurm_ended_is_told_as_before(case: str, bin: Path, tmp_path: Path) -> None:
    folder = restore(case, tmp_path)
    handle = f"{RUNS[case]['files']['slurm.json']['job']} {folder}"
    found = Slurm(bin=str(bin), wait=30).status([handle])[handle]
    assert json.loads(json.dumps(asdict(found))) == as_before(case)


def test_a_run_of_slurm_goes_on_is_not_sent_again_and_can_be_ended(bin: Path, tmp_path: Path) -> None:
    folder = restore("slurm: running", tmp_path)
    (folder / "job.sbatch").write_text("\n".join(RUNS["slurm: running"]["job.sbatch"]))
    (folder / "node.py").write_text("# the runner that Slurm starts again, if it starts this job again")
    engine = Slurm(bin=str(bin), wait=30)
    handle = engine.submit(Task.read(folder))
    assert handle == f"2 {folder}"
    assert engine.status([handle])[handle].state == "running"
    assert (folder / "node.py").exists()
    engine.cancel(handle)
    until((tmp_path / "ended").exists)  # nobody waits for scancel
    assert (tmp_path / "ended").read_text() == "2\n"
    script = (folder / "job.sbatch").read_text()
    asks = next(line for line in script.splitlines() if '"reason": "cancelled"' in line).strip().partition(" || ")[0]
    done = subprocess.run(["bash", "-c", f"folder={shlex.quote(str(folder))}; {asks}"])
    assert done.returncode == 0  # a job that Slurm starts again after this keeps the cancellation
