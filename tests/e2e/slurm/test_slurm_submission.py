"""What is made of sbatch's refusals, of lost and of slow answers; programs give real answers, no Slurm is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchhvd.engines.base import Task
from batchhvd.engines.slurm import Slurm
from batchhvd.engines.slurm.file_system import settling
from batchhvd.errors import EngineBusyError, EngineError


@pytest.fixture
def bin(tmp_path: Path) -> Path:
    """A folder with an sbatch that counts its calls and takes every job, and a squeue that knows none."""
    folder = tmp_path / "the bïn"
    folder.mkdir()
    takes(folder)
    answer(folder, "squeue", "true")
    return folder


def answer(bin: Path, name: str, commands: str) -> None:
    (bin / name).write_text(f"#!/bin/sh\n{commands}\n")
    (bin / name).chmod(0o755)


def takes(bin: Path, before: str = "") -> None:
    answer(bin, "sbatch", f"cat > /dev/null; echo x >> '{bin}/calls'; {before}\necho '7;bed'")


def refuses(bin: Path, told: str, name: str = "sbatch") -> None:
    answer(bin, name, f"cat > /dev/null; echo x >> '{bin}/calls'; cat >&2 <<'END'\n{told}\nEND\nexit 1")


def calls(bin: Path) -> int:
    return len((bin / "calls").read_text().splitlines()) if (bin / "calls").exists() else 0


def task(tmp_path: Path, **rest: object) -> Task:
    settings = {"nodes": ("a", "b"), "ranks": (1, 1), "launch": "horovod", "command": "true", "name": "x", **rest}
    return Task(folder=f"{tmp_path}/täsk", logs=f"{tmp_path}/lögs", **settings)  # type: ignore[arg-type]


FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    "told",
    [
        FAILED + "Unable to contact slurm controller (connect failure)",
        FAILED + "Required partition not available (inactive or drain)",
        FAILED + "Slurm temporarily unable to accept job, sleeping and retrying",
        "sbatch: error: Slurm controller in standby mode",
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
        + FAILED
        + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
    ],
)
def test_a_refusal_that_passes_is_no_failure(bin: Path, tmp_path: Path, told: str) -> None:
    engine = Slurm(bin=str(bin), wait=30)
    refuses(bin, told)
    with pytest.raises(EngineBusyError, match="Slurm takes no job at the moment: ") as caught:
        engine.submit(task(tmp_path))
    assert told.rpartition("failed: ")[2].removeprefix("sbatch: error: ") in str(caught.value)
    assert engine.find(f"{tmp_path}/täsk") is None
    takes(bin)
    assert engine.submit(task(tmp_path)) == f"7 {tmp_path}/täsk"


@pytest.mark.parametrize(
    "told",
    [
        FAILED + "invalid partition specified: nosuch",
        FAILED + "Invalid account or account/partition combination specified",
        FAILED + "Requested time limit is invalid (missing or exceeds some limit)",
        "sbatch: error: QOSMaxWallDurationPerJobLimit\n"
        + FAILED
        + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
    ],
)
def test_what_slurm_will_never_take_fails_at_once(bin: Path, tmp_path: Path, told: str) -> None:
    refuses(bin, told)
    with pytest.raises(EngineError, match="sbatch rejected the job") as caught:
        Slurm(bin=str(bin), wait=30).submit(task(tmp_path))
    assert not isinstance(caught.value, EngineBusyError)
    assert caught.value.output == told


def test_a_job_whose_answer_was_lost_is_found_and_not_sent_again(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30)
    refuses(bin, FAILED + "Socket timed out on send/recv operation")
    for _ in range(2):  # the second time, Slurm does not list it yet
        with pytest.raises(EngineBusyError, match="the answer of sbatch was lost"):
            engine.submit(task(tmp_path))
    answer(bin, "squeue", f'echo "41|RUNNING|None|0|0|N/A|{tmp_path}/täsk|"')
    assert engine.submit(task(tmp_path)) == f"41 {tmp_path}/täsk"
    assert calls(bin) == 1


def test_a_lost_answer_that_was_a_refusal_is_tried_again_after_a_while(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30, doubt=0.5)
    refuses(bin, FAILED + "Zero Bytes were transmitted or received")
    with pytest.raises(EngineBusyError):
        engine.submit(task(tmp_path))
    takes(bin)
    time.sleep(0.6)
    assert engine.submit(task(tmp_path)) == f"7 {tmp_path}/täsk"
    assert calls(bin) == 2


def test_nothing_is_sent_again_while_nobody_can_say_whether_it_was_taken(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30, doubt=0)
    refuses(bin, FAILED + "Socket timed out on send/recv operation")
    with pytest.raises(EngineBusyError):
        engine.submit(task(tmp_path))
    refuses(bin, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "squeue")
    takes(bin)
    with pytest.raises(EngineBusyError, match="not known whether it has accepted the job"):
        engine.submit(task(tmp_path))
    with pytest.raises(EngineBusyError, match="not known whether it has accepted the job"):
        Slurm(bin=str(bin), wait=30, doubt=0).find(f"{tmp_path}/täsk")  # also after a restart


def test_the_job_that_begins_first_claims_the_folder(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30)
    handle = engine.submit(task(tmp_path))
    (tmp_path / "täsk" / "slurm.job").symlink_to("6")
    answer(bin, "squeue", 'case "$*" in *jobs=6*) echo "6|RUNNING|None|0|0|N/A|/x|";; esac')
    assert engine.status([handle])[handle].state == "preparing"
    assert engine.find(f"{tmp_path}/täsk") == f"6 {tmp_path}/täsk"


def test_a_slow_sbatch_holds_up_nobody_and_is_called_once(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=0.05)
    takes(bin, f"until [ -e '{bin}/go' ]; do sleep 0.05; done")
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(EngineBusyError, match="has not answered yet"):
            engine.submit(task(tmp_path))
    assert time.monotonic() - began < 10
    (bin / "go").touch()
    handle = eventually(engine, tmp_path)
    assert (handle, calls(bin)) == (f"7 {tmp_path}/täsk", 1)


def eventually(engine: Slurm, tmp_path: Path) -> str:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            return engine.submit(task(tmp_path))
        except EngineBusyError:
            time.sleep(0.05)
    raise AssertionError("sbatch never answered")


def test_a_slow_squeue_holds_up_nobody(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30)
    handle = engine.submit(task(tmp_path))
    slow = Slurm(bin=str(bin), wait=0.05)
    answer(bin, "squeue", f"until [ -e '{bin}/go' ]; do sleep 0.05; done; echo '7|RUNNING|None|0|0|N/A|/x|'")
    began = time.monotonic()
    for _ in range(3):
        status = slow.status([handle])[handle]
        assert (status.state, status.reason) == ("queued", "Slurm has not answered yet")
    assert time.monotonic() - began < 10
    (bin / "go").touch()
    while (status := slow.status([handle])[handle]).state != "preparing":
        assert time.monotonic() - began < 20, status
        time.sleep(0.05)


def test_slurm_is_asked_more_seldom_while_nothing_changes(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30, pause=0.02)
    handle = engine.submit(task(tmp_path))
    answer(bin, "squeue", f"echo x >> '{bin}/asked'; echo '7|RUNNING|None|0|0|N/A|/x|'")
    began = time.monotonic()
    while time.monotonic() - began < 2:
        engine.status([handle])
        time.sleep(0.01)
    asked = len((bin / "asked").read_text().splitlines())
    assert 3 <= asked <= 20  # with the same pause all the time, it would be up to 100


def test_two_who_ask_about_different_jobs_share_the_answers(bin: Path, tmp_path: Path) -> None:
    engine = Slurm(bin=str(bin), wait=30, pause=60)
    handle = engine.submit(task(tmp_path))
    other = f"8{handle[1:]}"
    rows = "echo '7|RUNNING|None|0|0|N/A|/x|'; echo '8|RUNNING|None|0|0|N/A|/x|'"
    answer(bin, "squeue", f"echo x >> '{bin}/asked'; {rows}")
    for _ in range(5):  # as the tick and the setup tasks of clusters do
        engine.status([handle])
        engine.status([other])
    assert (bin / "asked").read_text() == "x\n" * 2


def test_a_command_that_hangs_does_not_keep_the_service_from_ending(bin: Path, tmp_path: Path) -> None:
    takes(bin, "sleep 30")
    code = f"""
from batchhvd.engines.base import Task
from batchhvd.engines.slurm import Slurm
place = {{"folder": {str(tmp_path / "run")!r}, "logs": {str(tmp_path / "logs")!r}, "nodes": ("a",), "ranks": (1,)}}
try:
    Slurm(bin={str(bin)!r}, wait=0.01).submit(Task(name="x", launch="single", command="true", **place))
except Exception as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.stdout == "sbatch has not answered yet\n", done.stderr


def test_settings_of_the_services_shell_do_not_beat_the_options(
    bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "urgent")
    takes(bin, f"env > '{bin}/environment'")
    Slurm(bin=str(bin), wait=30, partition="main").submit(task(tmp_path))
    assert "SBATCH_" not in (bin / "environment").read_text()
    assert "not passed on to Slurm: SBATCH_PARTITION" in caplog.text


@pytest.mark.parametrize(
    ("limit", "minutes"), [("infinite", "10081"), ("7-00:00:00", "10080"), ("1:30:00", "90"), ("45:00", "45")]
)
def test_no_more_time_is_asked_for_than_the_partition_gives(
    bin: Path, tmp_path: Path, limit: str, minutes: str
) -> None:
    answer(bin, "sinfo", f"echo 'main*|{limit}'")
    week = task(tmp_path, wall_seconds=7 * 24 * 3600.0)
    engine = Slurm(bin=str(bin), wait=30)
    engine.submit(week)
    assert f"#SBATCH --time={minutes}\n" in (tmp_path / "täsk/job.sbatch").read_text()
    said = [line for line in Task.read(tmp_path / "täsk").notices if "the job's own limit is 10080 minutes" in line]
    assert bool(said) == (int(minutes) < 10080)


def test_a_prologue_is_read_before_the_ranks_start(bin: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="is not a file"):
        Slurm(bin=str(bin), prologue=str(tmp_path / "none"))
    (tmp_path / "my modules").write_text("module load cuda")
    text = Slurm(bin=str(bin), wait=30, prologue=str(tmp_path / "my modules")).preview(task(tmp_path))
    assert f". '{tmp_path}/my modules'\n" in text


def test_the_ranks_have_a_little_less_time_to_end_than_slurm_gives(bin: Path, tmp_path: Path) -> None:
    answer(bin, "scontrol", "echo 'KillWait                = 30 sec'")
    Slurm(bin=str(bin), wait=30).submit(task(tmp_path))
    assert Task.read(tmp_path / "täsk").grace == 28


MOUNTS = """\
21 1 0:20 / / rw - overlay overlay rw
22 21 8:1 / /scratch rw - ext4 /dev/sda1 rw
23 21 0:30 / /home rw shared:1 - nfs4 server:/home rw
24 21 0:31 / /mnt/a\\040b rw - fuse.sshfs x rw
25 23 8:2 / /home/local rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("folder", "seconds"),
    [("/scratch/x", 3), ("/home/me", 60), ("/homeless", 3), ("/mnt/a b/c", 60), ("/home/local/x", 3)],
)
def test_how_long_a_file_system_may_hide_a_record(tmp_path: Path, folder: str, seconds: float) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert settling(Path(folder), tmp_path / "mountinfo") == seconds
