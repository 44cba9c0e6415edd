"""A program can be started in a node that runs, with the files and the variables of its ranks, and ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchhvd.engines.base import ENDED, Task
from batchhvd.engines.processes import Processes
from batchhvd.node.enter import NOT_THERE, NOT_YET
from batchhvd.node.processes import ticks
from tests.support.stage import LONG, Stage
from tests.support.waiting import until


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(Processes, tmp_path / "with a blank, ä")
    yield made
    made.end()


def begun(stage: Stage, **settings: Any) -> tuple[Task, str]:
    """Starts a task of two nodes that waits, and returns it with its handle when its ranks have begun."""
    task = stage.task(f'touch "$AZ_BATCHAI_JOB_TEMP/../../up-$HOROVOD_RANK"; sleep {LONG}', **settings)
    handle = stage.start(task)
    for rank in range(2):
        stage.until(task, f"up-{rank}")
    return task, handle


def command(stage: Stage, handle: str, index: int, line: str) -> list[str]:
    return [*stage.engine.entrance(handle, index), "/bin/sh", "-c", line]  # type: ignore[attr-defined]


def run(stage: Stage, handle: str, index: int, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(stage, handle, index, line), capture_output=True, text=True, timeout=60, check=False)


def test_a_program_sees_the_node_s_variables_and_place(stage: Stage) -> None:
    task, handle = begun(stage, environment={"COLOUR": "blue"}, secrets={"WORD": "sesame"})
    line = 'echo "$COLOUR $WORD $AZ_BATCHAI_NODE_NAME $AZ_BATCHAI_TASK_INDEX"; pwd; cat; exit 7'
    found = subprocess.run(command(stage, handle, 1, line), input="in\n", capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (7, "")
    assert found.stdout.splitlines() == [f"blue sesame {task.nodes[1]} 1", f"{task.folder}/temp/1", "in"]


def test_what_it_has_started_ends_with_it_and_signals_reach_it(stage: Stage) -> None:
    task, handle = begun(stage)
    marker = Path(task.folder) / "left"
    assert run(stage, handle, 0, f"(sleep {LONG}; :) & echo $! > '{marker}'").returncode == 0
    assert ticks(int(marker.read_text())) is None
    line = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(command(stage, handle, 0, line), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        assert (process.stdout.readline(), process.wait(60)) == ("caught\n", 3)


def test_it_ends_with_the_node_and_none_enters_after_that(stage: Stage) -> None:
    task, handle = begun(stage)
    line = f"trap '' HUP; echo ready; sleep {LONG}"
    with subprocess.Popen(
        command(stage, handle, 0, line), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "ready\n"
        stage.engine.cancel(handle)
        stage.wait(handle, lambda status: status.state in ENDED)
        assert process.wait(60) in (128 + signal.SIGHUP, 128 + signal.SIGKILL)
        assert process.stderr and "the node has ended" in process.stderr.read()
    after = run(stage, handle, 0, "echo in")
    assert (after.returncode, after.stdout) == (NOT_THERE, "")
    assert "runs no task" in after.stderr


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="views need root and Linux")
def test_it_sees_what_the_preparation_has_changed_and_waits_for_its_end(stage: Stage) -> None:
    go = stage.root / "täsk one" / "go"  # in the task's folder, which a view shows as it is
    mark = f"/etc/batchhvd-{os.getpid()}"
    wait = f"until [ -e '{go}' ]; do sleep 0.05; done; echo prepared > {mark}"
    task = stage.task(f'touch "$AZ_BATCHAI_JOB_TEMP/../../up"; sleep {LONG}', nodes=1, preparation=wait)
    handle = stage.start(task)
    until(lambda: (Path(task.folder) / "node-0.json").exists())
    early = run(stage, handle, 0, f"cat {mark}")
    assert (early.returncode, early.stdout) == (NOT_YET, "")
    go.touch()
    stage.until(task, "up")
    found = run(stage, handle, 0, f"cat {mark}; echo mine > {mark}; cat {mark}")
    assert (found.returncode, found.stdout) == (0, "prepared\nmine\n"), found.stderr
    assert not Path(mark).exists()
