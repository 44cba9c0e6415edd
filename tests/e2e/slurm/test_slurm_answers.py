"""How Slurm's answers are read, from programs that give those of real clusters; no Slurm is needed here."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from batchhvd.engines.base import Status, Task
from batchhvd.engines.slurm import Slurm
from batchhvd.errors import EngineError, EngineMissingError
from batchhvd.service.job_script import script as from_job_file

NOW = "date -d '-1 minute' +%Y-%m-%dT%H:%M:%S"


@pytest.fixture
def bin(tmp_path: Path) -> Path:
    """A folder with an sbatch that takes every job, and a squeue that knows none."""
    folder = tmp_path / "the bïn"
    folder.mkdir()
    answer(folder, "sbatch", "cat > /dev/null; echo '7;bed'")
    answer(folder, "squeue", "true")
    return folder


def answer(bin: Path, name: str, commands: str) -> None:
    (bin / name).write_text(f"#!/bin/sh\n{commands}\n")
    (bin / name).chmod(0o755)


def job(bin: Path, tmp_path: Path, state: str, reason: str = "None", code: int = 0) -> Status:
    """Returns the status of a job without records of which squeue says this."""
    answer(bin, "squeue", f'echo "7|{state}|{reason}|1|{code}|$({NOW})|/x|y|"')
    engine = Slurm(bin=str(bin), wait=30)
    handle = engine.submit(task(tmp_path))
    assert handle == f"7 {tmp_path}/täsk"
    return engine.status([handle])[handle]


def task(tmp_path: Path, **rest: object) -> Task:
    settings = {"nodes": ("a", "b"), "ranks": (1, 1), "launch": "horovod", "command": "true", "name": "x", **rest}
    return Task(folder=f"{tmp_path}/täsk", logs=f"{tmp_path}/lögs", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "told", "reason"),
    [
        ("TIMEOUT", "failed", "time"),
        ("DEADLINE", "failed", "time"),
        ("NODE_FAIL", "failed", "node"),
        ("BOOT_FAIL", "failed", "node"),
        ("PREEMPTED", "failed", "node"),
        ("OUT_OF_MEMORY", "failed", "memory"),
        ("CANCELLED", "cancelled", "cancelled"),
        ("COMPLETED", "succeeded", ""),  # its nodes' records may be on a file system that still hides them
        ("FAILED", "failed", "engine"),
    ],
)
def test_each_end_that_slurm_knows(bin: Path, tmp_path: Path, state: str, told: str, reason: str) -> None:
    status = job(bin, tmp_path, state)
    assert (status.state, status.reason, status.attempt) == (told, reason, 2)
    assert status.ended is not None and 50 < time.time() - status.ended < 90


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STAGE_OUT"])
def test_what_is_not_over_goes_on(bin: Path, tmp_path: Path, state: str) -> None:
    assert job(bin, tmp_path, state).state == "preparing"


@pytest.mark.parametrize(
    ("reason", "told", "advice"),
    [
        ("Resources", "Resources: not enough nodes are free", "wait"),
        ("PartitionTimeLimit", "longer than the partition's", "a shorter max_seconds or the option time"),
        ("ReqNodeNotAvail, UnavailableNodes:node3", "UnavailableNodes:node3: nodes that it needs are", "are back"),
        ("AssocGrpCPUMinutesLimit", "(AssocGrpCPUMinutesLimit: all users of the account", ""),
        ("QOSMaxJobsPerUserLimit", "you have reached the limit of the QOS on running jobs", "jobs of yours have ended"),
        ("job requeued in held state", "it is held", "scontrol release 7"),
        ("SomethingNew", "(SomethingNew)", ""),
    ],
)
def test_why_a_job_waits(bin: Path, tmp_path: Path, reason: str, told: str, advice: str) -> None:
    status = job(bin, tmp_path, "PENDING", reason)
    assert status.state == "queued"
    assert told in status.reason
    assert advice in status.advice


def test_accounting_is_asked_for_what_the_controller_has_forgotten(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30, pause=0)
    handle = engine.submit(task(tmp_path))
    assert engine.status([handle])[handle].state == "lost"
    answer(bin, "sacct", f'echo "7|CANCELLED by 1000|0:15|$({NOW})"')
    status = engine.status([handle])[handle]
    assert (status.state, status.exit_code) == ("cancelled", 143)
    answer(bin, "sacct", 'echo "Slurm accounting storage is disabled" >&2; exit 1')
    assert engine.status([handle])[handle].state == "lost"


@pytest.mark.parametrize(
    ("told", "state"), [("Invalid job id specified", "lost"), ("Socket timed out", "queued"), ("what?", "queued")]
)
def test_only_a_clear_no_makes_a_job_lost(bin: Path, tmp_path: Path, told: str, state: str) -> None:
    engine = Slurm(bin=str(bin), wait=30)
    handle = engine.submit(task(tmp_path))
    answer(bin, "squeue", f'echo "slurm_load_jobs error: {told}" >&2; exit 1')
    assert engine.status([handle])[handle].state == state


def test_a_controller_that_does_not_answer_is_left_alone_for_a_while(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30, pause=60)
    handle = engine.submit(task(tmp_path))
    count = tmp_path / "asked"
    refusal = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    answer(bin, "squeue", f'echo x >> "{count}"; echo "{refusal}" >&2; exit 1')
    for _ in range(3):
        status = engine.status([handle])[handle]
        assert (status.state, status.reason) == ("queued", "Slurm's controller does not answer")
    assert count.read_text() == "x\n"


def test_nodes_are_those_of_the_partition(bin: Path) -> None:
    rows = ["main*|n1|idle|none", "main*|n2|mixed~|none", "main*|n3|down*|Not responding", "big|n9|idle|none"]
    rows += ["main*|n4|drained|disk | cables", "main*|n5|idle*|none"]
    answer(bin, "sinfo", "cat <<'END'\n" + "\n".join(rows) + "\nEND")
    engine = Slurm(bin=str(bin), wait=30)
    assert engine.nodes() == 5
    assert engine.node_states() == {"n3": "down: Not responding", "n4": "drained: disk | cables", "n5": "idle"}


def test_a_silent_controller_changes_no_count_of_nodes(bin: Path) -> None:
    answer(bin, "sinfo", "exit 1")
    engine = Slurm(bin=str(bin), wait=30, pause=0)
    with pytest.raises(EngineError, match="does not answer"):
        engine.nodes()
    answer(bin, "sinfo", "echo 'main*|n1|idle|none'")
    assert engine.nodes() == 1
    answer(bin, "sinfo", "exit 1")
    assert engine.nodes() == 1


def test_programs_that_are_not_there_are_named_with_their_package(bin: Path) -> None:
    (bin / "squeue").unlink()
    with pytest.raises(EngineMissingError, match="squeue was not found in .*apt-get install slurm-client"):
        Slurm(bin=str(bin), wait=30)


@pytest.mark.horovod
def test_an_exported_script_for_horovodrun_runs(tmp_path: Path) -> None:
    pytest.importorskip("horovod")
    share = {"azureFileUrl": "https://a.file.core.windows.net/s", "accountName": "a", "relativeMountPath": "ü"}
    settings = {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/ü/it.py", "commandLineArgs": "'a b' $WORD"}
    properties = {"nodeCount": 2, "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/ü", "horovodSettings": settings}
    properties["mountVolumes"] = {"azureFileShares": [share]}
    properties["environmentVariables"] = [{"name": "WORD", "value": "wörd"}]
    folder = tmp_path / "the jöb"
    (folder / "mounts/ü").mkdir(parents=True)
    (folder / "mounts/ü/it.py").write_text("import os, sys; print(os.environ['HOROVOD_RANK'], *sys.argv[1:])")
    (tmp_path / "job.sh").write_text(from_job_file("horovodrun", {"properties": properties}, folder))
    done = subprocess.run(
        ["bash", tmp_path / "job.sh"],
        env={**os.environ, "HOSTS": "localhost:2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.rpartition(">:")[2] for line in done.stdout.splitlines()]
    assert sorted(line for line in lines if "wörd" in line) == ["0 a b wörd", "1 a b wörd"], done.stdout
