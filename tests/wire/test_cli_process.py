"""The command line as a program: its start, its end, and the service that it starts or does not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchhvd.cli import main as cli
from batchhvd.wire import local_service

COMMAND = [sys.executable, "-m", "batchhvd"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHHVD_ROOT", str(tmp_path / "sérvice root"))
    return tmp_path / "sérvice root"


def test_status_starts_nothing_and_says_how_to(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status"]) == 4
    assert capsys.readouterr() == ("", f"no service runs in {root}; start it with `batchhvd serve`\n")
    assert not root.exists()


def test_a_service_that_is_not_there_is_said_within_5_seconds(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setenv("BATCHHVD_TOKEN", "anything")
    started = time.monotonic()
    assert cli.run(["--endpoint", endpoint, "group", "list"]) == 4
    assert time.monotonic() - started < 5
    said = capsys.readouterr().err
    assert endpoint in said
    assert "start the service" in said


@pytest.mark.interpreter
def test_a_service_is_served_found_and_stopped(
    root: Path, poll: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    # A program of its own: what it starts must hold neither its pipes nor its session.
    done = subprocess.run([*COMMAND, "serve", "--detach"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found = local_service.find(root)
    assert found is not None
    assert found.endpoint in done.stderr
    assert cli.run(["group", "list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert cli.run(["serve"]) == 3  # there is one already
    assert cli.run(["serve", "--stop"]) == 0
    assert capsys.readouterr().err == "ended\n"
    assert local_service.find(root) is None
    assert not local_service.stop(root)
    poll(lambda: not Path(f"/proc/{found.pid}").exists(), 5)


@pytest.mark.interpreter
def test_ctrl_c_ends_a_service_in_the_foreground(root: Path, poll: Callable[..., Any]) -> None:
    process = subprocess.Popen([*COMMAND, "serve"], stderr=subprocess.PIPE, text=True)
    poll(lambda: local_service.find(root) and (root / "endpoint").exists(), 60)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "interrupted"
    assert local_service.find(root) is None


@pytest.mark.interpreter
def test_an_export_is_a_script_and_needs_no_service(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = Path(__file__).parents[1] / "data" / "jobs" / "tutorial-4-nodes.json"
    assert cli.run(["export", str(job), "--engine", "slurm", "--storage-account-name", "mystorageaccount"]) == 0
    assert capfd.readouterr().out.startswith("#!")
    assert cli.run(["export", str(job), "--engine", "nonsense", "--storage-account-name", "mystorageaccount"]) == 2
    assert "nonsense" in capfd.readouterr().err
    assert not root.exists()


@pytest.mark.interpreter
def test_a_reader_that_leaves_is_no_traceback() -> None:
    line = f"{sys.executable} -m batchhvd job --help | true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


@pytest.mark.interpreter
def test_the_programs_start_brings_nothing_heavy_along() -> None:
    code = (
        "import batchhvd.cli.main, sys, json; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    heavy = {"azure", "msrest", "requests", "rich", "jmespath", "tensorflow", "keras", "torch", "starlette", "uvicorn"}
    assert not set(json.loads(done.stdout)) & heavy


@pytest.mark.interpreter
def test_a_shell_completes_commands() -> None:
    env = {**os.environ, "_BATCHHVD_COMPLETE": "bash_complete", "COMP_WORDS": "batchhvd clu", "COMP_CWORD": "1"}
    done = subprocess.run(COMMAND, env=env, capture_output=True, text=True, timeout=60)
    assert "cluster" in done.stdout
