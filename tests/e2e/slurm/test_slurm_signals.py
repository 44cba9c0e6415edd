"""How Slurm ends runs: one SIGTERM to each rank, however the end comes, and a limit on going back into the queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchhvd.engines.base import ENDED
from batchhvd.engines.slurm import Slurm
from tests.support.slurm import Bed
from tests.support.stage import PYTHON, Stage

pytestmark = pytest.mark.slurm

NOTES = """
import os, signal, sys, time
rank, here = os.environ["HOROVOD_RANK"], os.environ["HERE"]
def note(*_):
    with open(f"{here}/terms-{rank}", "a") as file:
        file.write("x")
signal.signal(signal.SIGTERM, note)
open(f"{here}/on-{rank}-{os.environ.get('SLURM_RESTART_COUNT', 0)}", "w").close()
end = time.monotonic() + 60
while time.monotonic() < end and not os.path.exists(f"{here}/fail-{rank}"):
    time.sleep(0.05)
sys.exit(3)
"""


@pytest.fixture
def stage(slurm: Bed, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(lambda: Slurm(bin=str(slurm.bin), wait=30, pause=0.05), tmp_path / "the röot")
    yield stage
    stage.end()


def notes(stage: Stage, options: dict[str, str] | None = None) -> tuple[str, Path]:
    """Starts a task of two ranks on two nodes that note each SIGTERM; returns its handle and folder."""
    stage.root.mkdir(exist_ok=True)
    (stage.root / "notes.py").write_text(NOTES)
    folder = stage.root / "täsk one"
    task = stage.task(f'{PYTHON} "{stage.root}/notes.py"', environment={"HERE": str(folder)}, options=options or {})
    handle = stage.start(task)
    for rank in range(2):
        stage.until(task, f"on-{rank}-0")
    return handle, folder


ENDS: dict[str, Callable[[Stage, Bed, str, Path], object]] = {
    "terminated": lambda stage, bed, handle, folder: stage.engine.cancel(handle),
    "cancelled in Slurm": lambda stage, bed, handle, folder: bed.slurm("scancel", handle.partition(" ")[0]),
    "put back": lambda stage, bed, handle, folder: bed.slurm("scontrol", "requeue", handle.partition(" ")[0]),
    "another rank fails": lambda stage, bed, handle, folder: (folder / "fail-1").touch(),
}


@pytest.mark.parametrize("how", ENDS)
def test_each_rank_gets_sigterm_once(stage: Stage, slurm: Bed, how: str) -> None:
    handle, folder = notes(stage)
    ENDS[how](stage, slurm, handle, folder)
    stage.wait(handle, lambda status: status.state in ENDED or status.state == "queued")
    ended = [rank for rank in range(2) if how != "another rank fails" or rank == 0]
    assert {rank: (folder / f"terms-{rank}").read_text() for rank in ended} == dict.fromkeys(ended, "x")


def test_a_job_goes_back_into_the_queue_as_often_as_its_option_says(stage: Stage, slurm: Bed) -> None:
    handle, folder = notes(stage, options={"requeue-on-timeout": "1@30"})
    number = handle.partition(" ")[0]

    def nears_its_limit() -> None:  # what Slurm does 30 s before it
        slurm.slurm("scancel", "--batch", "--signal=USR1", number)

    nears_its_limit()
    stage.wait(handle, lambda status: status.state == "queued" and "BeginTime" in status.reason)
    slurm.slurm("scontrol", "update", f"jobid={number}", "starttime=now")
    status = stage.wait(handle, lambda status: status.state == "running")
    assert status.attempt == 2
    deadline = time.monotonic() + 40
    while not all((folder / f"on-{rank}-1").exists() for rank in range(2)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    before = [(folder / f"terms-{rank}").read_text() for rank in range(2)]
    nears_its_limit()
    time.sleep(1.5)
    assert stage.engine.status([handle])[handle].state == "running"
    assert [(folder / f"terms-{rank}").read_text() for rank in range(2)] == before == ["x", "x"]
