"""A node with apptainer, emulated: a script stands for it, which shows our half of what passes between the two."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from batchhvd.engines.base import ENDED, Status, Task
from batchhvd.engines.processes import Processes
from tests.support.waiting import until

# Instances are files; what is executed in one runs on this machine, in the environment that apptainer would clean.
STAND_IN = """#!/bin/bash
here=$(dirname "$0"); echo "$@" >>"$here/asked"
case "$1 $2" in
"instance start") touch "$here/instance-${@: -1}" ;;
"instance stop") rm "$here/instance-$3" || { echo "no instance found" >&2; exit 1; } ;;
exec*) cd "$4"; [ -e "$here/instance-${5#instance://}" ] || exit 255; shift 5; exec env -i PATH=/usr/bin:/bin "$@" ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the program, first in the search path."""
    (tmp_path / "apptainer").write_text(STAND_IN)
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def _run(folder: Path, command: str, *, cancel: bool = False, **more: Any) -> Status:
    box = {"engine": "apptainer", "image": "a:1", "server": "", "username": "", "password": "", "shm": ""}
    plain: dict[str, Any] = {"launch": "single", "ranks": (1,), "nodes": ("n",), "container": box, "name": "t"}
    plain |= {"folder": str(folder / "task"), "logs": str(folder / "logs"), "command": command}
    processes = Processes()
    handle = processes.submit(Task(**plain | more))
    if cancel:
        until(lambda: (folder / "logs" / "stdout.txt").exists() and (folder / "logs" / "stdout.txt").read_text(), 60)
        processes.cancel(handle)
    until(lambda: processes.status([handle])[handle].state in ENDED, 60)
    return processes.status([handle])[handle]


def test_preparation_and_rank_run_in_an_instance_that_is_stopped(folder: Path) -> None:
    status = _run(folder, 'echo "$V in $PWD"; exit 4', preparation="echo prepared", secrets={"V": "hunter2"})
    assert (status.reason, status.exit_code) == ("rank", 4)
    assert (folder / "logs" / "stdout.txt").read_text() == f"hunter2 in {folder}/task/temp/0\n"
    asked = (folder / "asked").read_text()
    assert "docker://docker.io/library/a:1" in asked and "hunter2" not in asked
    assert not list(folder.glob("instance-*"))


def test_a_rank_gets_the_signal_itself(folder: Path) -> None:
    status = _run(folder, "trap 'echo saved; exit 5' TERM; echo on; while :; do sleep 0.1; done", cancel=True)
    assert status.state == "cancelled"
    assert (folder / "logs" / "stdout.txt").read_text() == "on\nsaved\n"
    assert not list(folder.glob("instance-*"))


def test_a_node_without_the_engine_says_so(folder: Path) -> None:
    (folder / "apptainer").unlink()
    status = _run(folder, "true")
    assert status.reason == "container" and "this node has no apptainer" in status.error
