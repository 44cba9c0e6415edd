"""``batchhvd tutorial`` with a script that takes no time: every step, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchhvd.wire import local_service

SCRIPT = """
import os, pathlib, sys, time
rank, place = int(os.environ["HOROVOD_RANK"]), pathlib.Path(sys.argv[1].removeprefix("--dir="))
(place / f"pid-{rank}").write_text(str(os.getpid()))
print(f"rank {rank} is here", flush=True)
time.sleep(float(os.environ.get("TUTORIAL_SLEEP", SLEEP)))
if rank == 0:
    for epoch in (1, 2):
        print(f"Epoch {epoch}/2  accuracy 0.{epoch}000  loss {3 - epoch}.0000  100 images/s  2.0 s", flush=True)
    (place / "saved_models").mkdir()
    (place / "saved_models" / "model.h5").write_bytes(b"weights")
    print("Test loss: 0.5", "Test accuracy: 0.9712", sep="\\n", flush=True)
sys.exit(CODE if rank == 1 else 0)
"""


def begun(tmp_path: Path, sleep: float = 0, code: int = 0) -> tuple[subprocess.Popen[str], Path]:
    root, script = tmp_path / "run ä", tmp_path / "cheap script.py"
    script.write_text(SCRIPT.replace("SLEEP)", f"{sleep})").replace("CODE", str(code)), encoding="utf-8")
    options = ["--nodes", "2", "--root", str(root), "--script", str(script), "--model", "model.h5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "batchhvd", "tutorial", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    return process, root


def pids(root: Path) -> list[int]:
    return [int(path.read_text() or 0) for path in (root / "shares").rglob("pid-*")]


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.interpreter
def test_every_step_is_shown_and_nothing_runs_afterwards(tmp_path: Path) -> None:
    process, root = begun(tmp_path)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0, text
    steps = [line.split()[1] for line in text.splitlines() if line.startswith("✓")]
    before = ["service", "resource", "workspace", "cluster", "storage", "upload", "nodes", "job"]
    assert steps == [*before, "log", "download", "resize", "clean-up"]
    assert "rank 1 is here" in text
    assert "Test accuracy      0.9712" in text
    assert any(line.split()[:3] == ["2", "1.0000", "0.2000"] for line in text.splitlines())
    assert (root / "model.h5").read_bytes() == b"weights"
    assert local_service.find(root) is None
    assert not [path for path in (root / "shares").rglob("*") if "cifar" in path.name]


@pytest.mark.interpreter
def test_a_job_that_fails_is_shown_with_its_last_lines_and_its_logs_are_kept(tmp_path: Path) -> None:
    process, root = begun(tmp_path, code=7)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 1, text
    assert "Rank 1 ended with exit code 7" in text
    assert "rank 1 is here" in (root / "logs" / "stdout.txt").read_text(encoding="utf-8")
    assert local_service.find(root) is None


@pytest.mark.interpreter
def test_ctrl_c_leaves_no_rank_and_no_service(tmp_path: Path, poll: Callable[..., Any]) -> None:
    process, root = begun(tmp_path, sleep=100)
    started = poll(lambda: len(pids(root)) == 2 and all(pids(root)) and pids(root), 60)
    process.send_signal(signal.SIGINT)
    poll(lambda: "cifar_distributed failed" in (root / "service.log").read_text(encoding="utf-8"), 60)
    process.send_signal(signal.SIGINT)  # people press it twice
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert "nothing is left running" in text
    assert not [pid for pid in started if alive(pid)]
    assert local_service.find(root) is None
