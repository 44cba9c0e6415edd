"""The node runner as one file: what is in it, and that it runs wherever there is a Python."""

from __future__ import annotations

import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import evolve

from batchhvd.engines.base import Task
from batchhvd.node import archive
from batchhvd.node.folder.records import declare, read_node
from tests.support.waiting import until

PYTHON = [sys.executable, "-I", "-S"]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A task of one node that is this machine."""
    task = Task(
        name="t",
        folder=str(tmp_path / "täsk one"),
        logs=str(tmp_path / "lögs"),
        nodes=("a",),
        ranks=(1,),
        launch="single",
        command="echo ran; exit 3",
    )
    task.write()
    return task


def run(task: Task, *command: str, cwd: Path | None = None, **variables: str) -> None:
    """Runs the only node of a task; it must do what the task says."""
    words = [*command, task.folder, "0", "--loopback"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=cwd, env=variables or None)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    assert Path(task.logs, "stdout.txt").read_text() == "ran\n"


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """Returns a copy of an archive of which the content of each member was changed."""
    copy = path.with_name("changed.pyz")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return copy


def test_it_runs_by_itself(task: Task) -> None:
    path = archive.write(Path(task.folder))
    command = archive.command(task.folder, "0", "--loopback")
    assert command == [*PYTHON, str(path), task.folder, "0", "--loopback"]
    run(task, *command[:4])


def test_its_folder_runs_too(task: Task) -> None:
    run(task, *PYTHON, str(archive.FOLDER))


def test_it_runs_as_a_module(task: Task) -> None:
    run(task, sys.executable, "-m", "batchhvd.node", cwd=archive.FOLDER.parents[1])


def test_nothing_of_the_job_gets_into_it(task: Task, tmp_path: Path) -> None:
    for name in ("json.py", "batchhvd.py", "sitecustomize.py"):
        (tmp_path / name).write_text("raise SystemExit('the job has shadowed it')")
    run(task, *PYTHON, str(archive.write(Path(task.folder))), cwd=tmp_path, PYTHONPATH=str(tmp_path))


def test_another_python_compiles_the_sources(task: Task) -> None:
    path = archive.write(Path(task.folder))
    run(task, *PYTHON, str(rewritten(path, lambda name, data: b"????" + data[4:] if name.endswith("c") else data)))


def test_this_python_does_not_compile_anything(task: Task) -> None:
    path = archive.write(Path(task.folder))
    run(task, *PYTHON, str(rewritten(path, lambda name, data: data if name.endswith("c") else b"this is no Python")))


def test_its_name_stands_for_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = archive.name()
    assert archive.write(tmp_path).name == name
    code = f"from batchhvd.node import archive; print(archive.name()); archive.write(archive.Path({str(tmp_path)!r}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=archive.FOLDER.parents[1])
    assert other.stdout.split() == [name], other.stderr
    sources = archive._sources()
    monkeypatch.setattr(archive, "_sources", lambda: {**sources, "batchhvd/node/node.py": b"pass\n"})
    assert archive.name() != name


def test_one_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / archive.name()
    path.write_bytes(b"a task runs from it")
    assert archive.write(tmp_path) == path
    assert path.read_bytes() == b"a task runs from it"
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_node_loads_little_before_its_ranks_start(tmp_path: Path) -> None:
    path = archive.write(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(path)!r}); import batchhvd.node.start; print(*sys.modules)"
    done = subprocess.run([*PYTHON, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "batchhvd.node.node" in loaded
    assert not loaded & {
        "attr",
        "batchhvd.errors",
        "batchhvd.node.preparation",
        "batchhvd.node.sandbox.view",
        "zipfile",
    }


def test_a_node_that_waits_for_the_others_heeds_a_cancellation(task: Task) -> None:
    task = evolve(task, nodes=("a", "b"), ranks=(1, 1), launch="horovod")
    task.write()
    folder = Path(task.folder)
    archive.write(folder)
    with subprocess.Popen(archive.command(task.folder, "1", "--loopback")) as node:  # node 0 never comes
        until(lambda: read_node(folder, 1))
        declare(folder, "cancelled", error="the job was terminated")
        assert node.wait(10) == 0
    record = read_node(folder, 1)
    assert record is not None
    assert (record["state"], record["reason"], record["ranks"]) == ("ended", "cancelled", [])
    assert Path(task.logs, "stdout.txt").read_text() == ""
    assert "stopped before the ranks were started" in Path(task.logs, "execution-b.log").read_text()


def test_a_command_can_name_another_python() -> None:
    assert shlex.join(archive.command("/a b", "0", python="/opt/python")).startswith("/opt/python -I -S '/a b/node-")
