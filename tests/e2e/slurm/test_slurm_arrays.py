"""Many tasks handed to Slurm in one go: each is an element of a job array, with its own record, log, exit and end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from batchhvd.engines.base import ENDED, Task
from batchhvd.engines.slurm import Slurm
from batchhvd.engines.slurm.run import SlurmRun
from batchhvd.errors import EngineBusyError, EngineError
from batchhvd.node.folder.records import write_json
from tests.e2e.slurm.test_slurm_submission import FAILED, answer, calls
from tests.support.slurm import Bed
from tests.support.waiting import until

pytestmark = pytest.mark.slurm
LIMIT = "QOSMaxSubmitJobPerUserLimit\n" + FAILED + "Job violates accounting/QOS policy (job submit limit)"


def tasks(place: Path, *commands: str, **settings: object) -> list[Task]:
    found = []
    for number, command in enumerate(commands):
        folder = place / f"täsk {number}"
        folder.mkdir(parents=True)
        own = {"name": f"many_{number}", "folder": str(folder), "logs": str(folder / "logs"), "command": command}
        plain = {"nodes": ("a",), "ranks": (1,), "launch": "single", **own, **settings}
        found.append(Task(**plain))  # type: ignore[arg-type]
    return found


@pytest.fixture
def bin(tmp_path: Path) -> Path:
    """A folder with an sbatch that takes arrays of at most two and counts them, and a squeue that knows no job."""
    folder = tmp_path / "bin"
    folder.mkdir()
    most = f"""grep -q 'array=0-[2-9]' '{folder}/script' && {{ cat >&2 <<'END'\n{LIMIT}\nEND\nexit 1; }}"""
    count = f"echo x >> '{folder}/calls'; echo $(wc -l < '{folder}/calls')"
    answer(folder, "sbatch", f"cat > '{folder}/script'; {most}\n{count}")
    answer(folder, "squeue", "true")
    return folder


def test_an_array_that_is_too_large_for_a_limit_is_submitted_in_parts(bin: Path, tmp_path: Path) -> None:
    many = tasks(tmp_path / "root", *["true"] * 5)
    engine = Slurm(bin=str(bin), wait=30)
    numbers: list[str] = []
    while left := many[len(numbers) :]:
        told = engine.submit_many(left)
        numbers += [str(told[task.folder]).partition(" ")[0] for task in left if isinstance(told[task.folder], str)]
        waiting = [error for error in told.values() if not isinstance(error, str)]
        assert all(isinstance(error, EngineBusyError) and "QOSMax" in str(error) for error in waiting)
    assert numbers == ["1_0", "1_1", "2_0", "2_1", "3"] and calls(bin) == 3


def test_tasks_of_a_lost_answer_are_found_by_their_place_in_the_array(bin: Path, tmp_path: Path) -> None:
    many = tasks(tmp_path / "root", "true", "true")
    engine = Slurm(bin=str(bin), wait=30)
    answer(bin, "sbatch", f"cat > '{bin}/script'; echo 'Socket timed out on send/recv' >&2; exit 1")
    assert all(isinstance(told, EngineBusyError) for told in engine.submit_many(many).values())
    place = re.search('chdir="(.+)"', (bin / "script").read_text())
    assert place
    answer(bin, "squeue", f'for i in 1 0; do echo "41_$i|PENDING|None|0|0|N/A|{place[1]}|"; done')
    told = Slurm(bin=str(bin), wait=30).submit_many(many)
    assert [told[task.folder] for task in many] == [f"41_{index} {task.folder}" for index, task in enumerate(many)]


def test_tasks_that_differ_in_what_slurm_is_asked_for_share_no_array(bin: Path, tmp_path: Path) -> None:
    short = tasks(tmp_path / "short", "true", "true", wall_seconds=60.0)
    others = tasks(tmp_path / "long", "true", "true", wall_seconds=600.0)
    told = Slurm(bin=str(bin), wait=30).submit_many([*short, *others])
    assert sorted(str(found).partition(" ")[0] for found in told.values()) == ["1_0", "1_1", "2_0", "2_1"]


def test_a_refused_array_names_the_task_that_slurm_will_never_take(bin: Path, tmp_path: Path) -> None:
    answer(bin, "sbatch", f"cat > /dev/null; echo '{FAILED}Invalid account' >&2; exit 1")
    told = Slurm(bin=str(bin), wait=30).submit_many(tasks(tmp_path / "root", "true", "true"))
    assert all("Invalid account" in str(error) for error in told.values())
    assert all(isinstance(error, EngineError) and not isinstance(error, EngineBusyError) for error in told.values())


def test_each_element_ends_by_itself_and_only_the_one_that_is_cancelled(slurm: Bed, tmp_path: Path) -> None:
    wait = "echo begun; sleep 20000"
    again = 'echo run; [ "$SLURM_RESTART_COUNT" ] || sleep 20000'
    many = tasks(tmp_path / "röot", "echo $SLURM_ARRAY_TASK_ID", "exit 3", wait, again)
    sharing = {"cpus-per-task": "1", "mem": "200"}
    engine = Slurm(bin=str(slurm.bin), wait=30, pause=0.1, grace=1, **sharing)
    told = engine.submit_many(many)
    handles = [str(told[task.folder]) for task in many]
    assert {handle.partition("_")[0] for handle in handles} == {handles[0].partition("_")[0]}
    log = {index: Path(task.logs, "stdout.txt") for index, task in enumerate(many)}

    def ended(index: int) -> bool:
        return engine.status(handles)[handles[index]].state in ENDED

    until(lambda: ended(0) and ended(1) and log[2].exists() and log[3].exists() and "run" in log[3].read_text(), 60)
    slurm.slurm("scontrol", "requeue", handles[3].split()[0])
    number = handles[3].split()[0]
    until(lambda: "PENDING" in slurm.slurm("squeue", "-hr", "-j", number, "-o", "%T"), 60)
    slurm.slurm("scontrol", "update", f"jobid={number}", "starttime=now")
    engine.cancel(handles[2])
    until(lambda: ended(2) and ended(3), 120)
    states = engine.status(handles)
    assert [(states[handle].state, states[handle].exit_code) for handle in (*handles[:2], handles[3])] == [
        ("succeeded", 0),
        ("failed", 3),
        ("succeeded", 0),
    ]
    assert states[handles[2]].state == "cancelled" and states[handles[3]].attempt == 2
    assert (log[0].read_text(), log[2].read_text()) == ("0\n", "begun\n")


def test_records_that_are_being_put_aside_for_the_next_attempt_say_nothing(tmp_path: Path) -> None:
    node = {"host": "h", "state": "ended", "pid": 1, "ranks": [], "preparation": None, "reason": "node", "error": "x"}
    write_json(tmp_path / "slurm.json", {"job": "7", "nodes": ["a"]})
    write_json(tmp_path / "node-0.json", {**node, "started": 1.0, "ended": 2.0, "ticks": "1"})
    assert not SlurmRun.read(f"7 {tmp_path}").is_final  # its stop.json is gone already
