"""A script and a function in one call on hosts under Slurm: output, values, results, a look inside, and the end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import batchhvd
from batchhvd import JobFailedError
from batchhvd.cli.main import run as batchhvd_command
from batchhvd.node.enter import NOT_YET
from tests.support.slurm import Bed
from tests.support.waiting import until

pytestmark = pytest.mark.slurm
SCRIPT = """
import os, pathlib, socket, sys
print(os.environ["HOROVOD_RANK"], socket.gethostname(), *sys.argv[1:], flush=True)
pathlib.Path(os.environ["AZ_BATCHAI_OUTPUT_RESULT"], os.environ["HOROVOD_RANK"]).write_text(socket.gethostname())
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def session(slurm: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[batchhvd.Session]:
    monkeypatch.setenv("PATH", f"{slurm.bin}:{os.environ['PATH']}")
    monkeypatch.setenv("BATCHHVD_ROOT", str(tmp_path / "the röot"))
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(project)
    session = batchhvd.local(engine="slurm")
    yield session
    session.stop_service()


def test_a_script_ends_with_its_output_results_and_exit_code_here(
    session: batchhvd.Session, slurm: Bed, capfd: pytest.CaptureFixture[str]
) -> None:
    assert batchhvd_command(["run", "train.py", "--nodes", "2", "--", "3"]) == 3
    lines = sorted(line.split() for line in capfd.readouterr().out.splitlines())
    assert [(rank, argument) for rank, _, argument in lines] == [("0", "3"), ("1", "3")]
    hosts = [host for _, host, _ in lines]
    assert len(set(hosts)) == 2 and set(hosts) <= set(slurm.nodes)
    results = Path("batchhvd-results/train-0001")
    assert [(results / rank).read_text() for rank in "01"] == hosts


def entered(line: list[str]) -> subprocess.CompletedProcess[str] | None:
    """Enters a node; None if it has not begun yet."""
    found = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    return None if found.returncode == NOT_YET else found


def hosts(path: str) -> tuple[str, str]:
    import socket
    import time

    while not os.path.exists(path):
        time.sleep(0.05)
    return os.environ["HOROVOD_RANK"], socket.gethostname()


def test_a_function_runs_on_the_hosts_and_its_nodes_can_be_entered(session: batchhvd.Session, tmp_path: Path) -> None:
    go = tmp_path / "go"
    experiment = session.create_group("batchhvd").create_workspace("runs").create_experiment("functions")
    future = experiment.submit(hosts, str(go), nodes=2)
    future.job.wait("running", timeout=60)
    line = [*future.job.entrance(1), "sh", "-c", f'touch "{go}"; echo $AZ_BATCHAI_TASK_INDEX on $(hostname); exit 7']
    found = until(lambda: entered(line))
    assert found is not None
    values = future.results(timeout=60)
    assert [rank for rank, _ in values] == ["0", "1"]
    assert (found.returncode, found.stdout) == (7, f"1 on {values[1][1]}\n"), found.stderr


def test_a_cancelled_run_leaves_nothing_in_slurm(session: batchhvd.Session, slurm: Bed, tmp_path: Path) -> None:
    experiment = session.create_group("batchhvd").create_workspace("runs").create_experiment("functions")
    job = experiment.submit(hosts, str(tmp_path / "never"), nodes=2).job.wait("running", timeout=60)
    assert batchhvd_command(["job", "cancel", job.name, "-g", "batchhvd", "-w", "runs", "-e", "functions"]) == 0
    with pytest.raises(JobFailedError, match="terminated"):
        job.wait(timeout=60)
    until(lambda: not slurm.slurm("squeue", "-h").strip())
