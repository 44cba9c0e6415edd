"""What every engine has to do, written once; each engine's test file is its fixtures and an empty subclass.

A subclass gives the fixture ``make``, which returns a fresh instance of the engine each time it is called. Everything
runs for real: each task is a few processes of the shell.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve

from batchhvd.engines.base import ENDED, Engine, Status, Task, TaskState
from batchhvd.errors import EngineError
from batchhvd.node import archive
from tests.support.stage import LONG, PYTHON, Stage
from tests.support.waiting import gone


class EngineContract:
    """The tests; ``make`` comes from the subclass."""

    @pytest.fixture
    def stage(self, make: Callable[[], Engine], tmp_path: Path) -> Iterator[Stage]:
        stage = Stage(make, tmp_path / "the röot")
        yield stage
        stage.end()

    # -- how runs go and end --

    def test_a_good_run_succeeds_and_says_when(self, stage: Stage) -> None:
        before = time.time()
        status = stage.run(stage.task("echo done", nodes=3))
        assert (status.state, status.exit_code, status.reason, status.attempt) == ("succeeded", 0, "", 1)
        assert status.started and status.ended
        assert before - 1 < status.started <= status.ended < time.time() + 1

    def test_states_come_in_their_order(self, stage: Stage) -> None:
        handle, seen = stage.start(stage.task("sleep 0.7")), dict[str, None]()

        def ended(status: Status) -> bool:
            seen[status.state] = None
            return status.state in ENDED

        stage.wait(handle, ended)
        order = list(seen)
        assert "running" in order
        assert order == [state for state in TaskState if state in order]

    def test_exit_code_rank_node_and_last_line_of_the_failing_rank_are_told(self, stage: Stage) -> None:
        task = stage.task('echo "I am $HOROVOD_RANK"; [ "$HOROVOD_RANK" = 1 ] && exit 9; sleep 30', nodes=2)
        status = stage.run(task)
        assert (status.state, status.reason, status.exit_code, status.rank) == ("failed", "rank", 9, 1)
        assert status.node == task.nodes[1]
        assert status.tail[-1] == "I am 1"

    def test_a_signal_is_told_as_a_shell_does(self, stage: Stage) -> None:
        assert stage.run(stage.task("kill -SEGV $$", nodes=1)).exit_code == 139

    def test_a_dead_rank_stops_the_others_and_nothing_is_left(self, stage: Stage) -> None:
        task = stage.task(f'[ "$HOROVOD_RANK" = 2 ] && kill -9 $$; sleep {LONG}.75', nodes=2, ranks=(2, 2))
        begun = time.monotonic()
        assert stage.run(task).exit_code == 137
        assert time.monotonic() - begun < 20
        assert gone(f"sleep {LONG}.75".replace(" ", "\0"))

    def test_what_ranks_leave_in_the_background_ends_with_them(self, stage: Stage) -> None:
        word = f"{LONG}.25"
        stage.run(
            stage.task(f"sleep {word} & setsid sleep {word} & (setsid nohup sleep {word} &) ; sleep 0.2", nodes=2)
        )
        assert gone(word)

    def test_a_single_command_runs_once(self, stage: Stage) -> None:
        task = stage.task("echo once", launch="single", nodes=2)
        assert stage.run(task).state == "succeeded"
        assert stage.lines(task) == ["once"]

    def test_a_missing_script_is_told_apart(self, stage: Stage) -> None:
        status = stage.run(stage.task("echo never", script="$AZ_BATCHAI_JOB_TEMP/no such.py"))
        assert (status.state, status.reason) == ("failed", "script")

    def test_time_limit(self, stage: Stage) -> None:
        task = stage.task(f"sleep {LONG}.5", wall_seconds=1.0)
        begun = time.monotonic()
        status = stage.run(task)
        assert (status.state, status.reason) == ("failed", "time")
        assert time.monotonic() - begun < 15
        assert gone(f"{LONG}.5")

    # -- preparation --

    def test_preparation_runs_once_on_each_node_before_the_ranks(self, stage: Stage) -> None:
        task = stage.task(
            'cat "$AZ_BATCHAI_JOB_TEMP/prepared"',
            nodes=2,
            ranks=(2, 2),
            preparation='echo "preparing"; echo "by $AZ_BATCHAI_TASK_INDEX" >> "$AZ_BATCHAI_JOB_TEMP/prepared"',
            prepare="host",
        )
        assert stage.run(task).state == "succeeded"
        assert sorted(stage.lines(task)) == ["by 0", "by 0", "by 1", "by 1"]
        for node in task.nodes:
            assert stage.lines(task, f"stdout-job_prep-{node}.txt") == ["preparing"]

    def test_failing_preparation_is_told_apart_and_no_rank_starts(self, stage: Stage) -> None:
        fails = 'echo "broken here" >&2; [ "$AZ_BATCHAI_TASK_INDEX" = 1 ] && exit 3; exit 0'
        task = stage.task("echo never", preparation=fails, prepare="host")
        status = stage.run(task)
        assert (status.state, status.reason, status.exit_code) == ("failed", "preparation", 3)
        assert (status.node, status.rank) == (task.nodes[1], None)
        assert status.tail[-1] == "broken here"

    # -- output --

    def test_output_of_all_ranks_is_complete_and_its_lines_whole(self, stage: Stage) -> None:
        count = 3000
        command = f'for i in $(seq {count}); do echo "rank $HOROVOD_RANK line $i end"; done'
        task = stage.task(command, nodes=3, ranks=(2, 1, 1))
        assert stage.run(task).state == "succeeded"
        wanted = {f"rank {rank} line {line} end" for rank in range(4) for line in range(1, count + 1)}
        lines = stage.lines(task)
        assert len(lines) == len(wanted)
        assert set(lines) == wanted

    def test_letters_beyond_ascii_are_never_cut(self, stage: Stage) -> None:
        text = "".join(["é€😀"] * 7)
        slowly = f"for byte in {text.encode()!r}: os.write(1, bytes([byte])); time.sleep(0.012)"
        task = stage.task(f'{PYTHON} -S -c "import os, time\n{slowly}"', nodes=2)
        assert stage.run(task).state == "succeeded"
        assert sorted(stage.text(task)) == sorted(text * 2)

    # -- one run that goes well, seen from all sides --

    @pytest.fixture(scope="class")
    @classmethod
    def good(cls, make: Callable[[], Engine], tmp_path_factory: pytest.TempPathFactory) -> tuple[Stage, Task]:
        """Returns the stage and the task of a run of three ranks on two nodes that has ended well."""
        stage = Stage(make, tmp_path_factory.mktemp("good") / "the röot")
        task = stage.task(GOOD, nodes=2, ranks=(2, 1), environment=VARIABLES, notices=("a notice for all",))
        status = stage.run(task)
        assert status.state == "succeeded", status
        return stage, task

    def test_output_and_errors_go_to_files_of_their_own(self, good: tuple[Stage, Task]) -> None:
        stage, task = good
        assert (stage.lines(task, "stderr.txt"), len(stage.lines(task))) == (["error"] * 3, 6)

    def test_each_node_has_a_log_of_its_own(self, good: tuple[Stage, Task]) -> None:
        stage, task = good
        for node in task.nodes:
            assert "a notice for all" in stage.text(task, f"execution-{node}.log")

    def test_variables_reach_the_ranks_with_those_before_them_expanded(self, good: tuple[Stage, Task]) -> None:
        stage, task = good
        told = [line for line in stage.lines(task) if line.startswith("told")]
        assert told == ["told /a b/ü/c|/a b/ü/c/d|x\"y $NOT 'z'"] * 3

    def test_each_rank_knows_its_place(self, good: tuple[Stage, Task]) -> None:
        stage, task = good
        first, second = task.nodes
        places = sorted(line for line in stage.lines(task) if line.startswith("place"))
        assert places == [
            f"place 0 3 0 2 0 2 {first}",
            f"place 1 3 1 2 0 1 {first}",
            f"place 2 3 0 1 1 2 {second}",
        ]

    # -- what ranks are told --

    def test_secrets_reach_the_ranks_and_nobody_else(self, stage: Stage) -> None:
        secret = "s3cr$t \"quoted\" 'ü'"
        task = stage.task('printf %s "$TOKEN" | md5sum', secrets={"TOKEN": secret})
        assert secret not in stage.engine.preview(task)
        assert secret not in repr(task)
        handle = stage.start(task)
        stage.wait(handle, lambda status: status.state in ENDED)
        assert secret not in handle
        assert stage.lines(task) == [f"{hashlib.md5(secret.encode()).hexdigest()}  -"] * 2
        for path in [*Path(task.folder).rglob("*"), *Path(task.logs).rglob("*")]:
            if path.is_file() and path.stat().st_mode & 0o077:
                data = path.read_bytes()
                assert secret.encode() not in data and json.dumps(secret).encode() not in data, path

    def test_ranks_meet_at_the_rendezvous(self, stage: Stage) -> None:
        (stage.root / "täsk one").mkdir(parents=True)
        script = stage.root / "täsk one" / "meet.py"
        script.write_text(MEET)
        task = stage.task(f'{PYTHON} "{script}"', nodes=3, ranks=(2, 1, 1))
        assert stage.run(task).state == "succeeded", stage.text(task, "stderr.txt")
        assert set(stage.lines(task)) == {"met 0,1,2,3"}

    def test_mpi_ranks_meet(self, stage: Stage) -> None:
        if shutil.which("mpirun") is None:
            pytest.skip("needs the package openmpi-bin")
        (stage.root / "täsk one").mkdir(parents=True)
        script = stage.root / "täsk one" / "sum.py"
        script.write_text(MPI)
        task = stage.task(f'{PYTHON} "{script}"', nodes=2, ranks=(2, 2), launch="mpi", environment={"WORD": "a b"})
        assert stage.run(task).state == "succeeded", stage.text(task, "stderr.txt")
        assert sorted(stage.lines(task)) == [f"{rank} of 4: 10, a b" for rank in range(4)]

    # -- cancelling --

    def test_cancelling_twice_ends_a_run_and_lets_ranks_save(self, stage: Stage) -> None:
        trap = f"trap 'echo saved; exit 0' TERM; touch here-$HOROVOD_RANK; for i in $(seq {LONG}); do sleep 0.05; done"
        task = stage.task(f'cd "{stage.root}/täsk one"; {trap}')
        handle = stage.start(task)
        stage.until(task, "here-0")
        stage.until(task, "here-1")
        for _ in range(2):
            stage.engine.cancel(handle)
        status = stage.wait(handle, lambda status: status.state in ENDED)
        assert (status.state, status.reason) == ("cancelled", "cancelled")
        assert stage.lines(task) == ["saved"] * 2
        stage.engine.cancel(handle)
        assert stage.engine.status([handle])[handle].state == "cancelled"

    def test_ranks_that_do_not_heed_are_killed(self, stage: Stage) -> None:
        word = f"{LONG}.125"
        task = stage.task(
            f"trap '' TERM; touch \"$HERE/on\"; sleep {word}", environment={"HERE": f"{stage.root}/täsk one"}
        )
        handle = stage.start(task)
        stage.until(task, "on")
        stage.engine.cancel(handle)
        assert stage.wait(handle, lambda status: status.state in ENDED, 20).state == "cancelled"
        assert gone(word)

    def test_cancelling_at_once_ends_a_run_that_has_hardly_begun(self, stage: Stage) -> None:
        handle = stage.start(stage.task(f"sleep {LONG}.375"))
        stage.engine.cancel(handle)
        assert stage.wait(handle, lambda status: status.state in ENDED).state == "cancelled"
        assert gone(f"{LONG}.375")

    def test_cancelling_what_is_over_or_unknown_does_nothing(self, stage: Stage) -> None:
        handle = stage.start(stage.task("true", nodes=1))
        stage.wait(handle, lambda status: status.state in ENDED)
        stage.engine.cancel(handle)
        stage.engine.cancel(handle.replace("täsk one", "never was"))
        assert stage.engine.status([handle])[handle].state == "succeeded"

    # -- handles --

    def test_an_unknown_handle_is_lost_and_raises_nothing(self, stage: Stage) -> None:
        good = stage.start(stage.task("true", nodes=1))
        bad = good.replace("täsk one", "never was")
        assert stage.engine.status([bad])[bad].state == "lost"
        assert set(stage.engine.status([good, bad])) == {good, bad}
        assert stage.engine.status([]) == {}

    def test_a_fresh_instance_answers_and_cancels(self, stage: Stage) -> None:
        task = stage.task('touch "$HERE/on"; sleep 60', environment={"HERE": f"{stage.root}/täsk one"})
        handle = stage.start(task)
        stage.until(task, "on")
        stage.engine = stage.make()
        assert stage.wait(handle, lambda status: status.state == "running").state == "running"
        stage.engine.cancel(handle)
        assert stage.wait(handle, lambda status: status.state in ENDED).state == "cancelled"

    def test_a_second_submission_of_a_folder_finds_the_first(self, stage: Stage) -> None:
        task = stage.task("echo once; sleep 0.3", nodes=2)
        handle = stage.start(task)
        assert stage.make().submit(task) == handle
        stage.wait(handle, lambda status: status.state in ENDED)
        assert stage.make().submit(task) == handle
        assert stage.lines(task) == ["once"] * 2

    def test_many_handles_are_told_at_once(self, stage: Stage) -> None:
        codes = {stage.start(stage.task(f"exit {code}", nodes=1, name=f"täsk {code}")): code for code in range(6)}
        deadline = time.monotonic() + 40
        while any(status.state not in ENDED for status in stage.engine.status(list(codes)).values()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert {handle: status.exit_code for handle, status in stage.engine.status(list(codes)).items()} == codes

    # -- before a run --

    def test_the_preview_touches_nothing_and_names_the_runner(self, stage: Stage) -> None:
        task = stage.task("true")
        assert archive.name() in stage.engine.preview(task)
        assert stage.engine.preview(task) == stage.make().preview(task)
        assert not stage.root.exists()

    def test_an_option_that_it_does_not_know_is_refused_before_anything_runs(self, stage: Stage) -> None:
        task = evolve(stage.task("true"), options={"no-such-option": "1"})
        with pytest.raises(EngineError, match="no-such-option"):
            stage.engine.submit(task)
        assert not stage.root.exists()

    def test_it_has_nodes(self, stage: Stage) -> None:
        assert stage.engine.nodes() >= 3


GOOD = """
echo "told $PLACE|$OTHER|$ODD"
echo "error" >&2
for name in RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE HOSTNAME; do
    name=HOROVOD_$name
    set -- "$@" "${!name}"
done
echo "place $*"
"""
VARIABLES = {"BASE": "/a b/ü", "PLACE": "$BASE/c", "OTHER": "${PLACE}/d", "ODD": "x\"y $NOT 'z'"}

# Every rank tells the meeting point its number and asks for those of the others.
MEET = """
import os, time, urllib.error, urllib.request

rank, size = (os.environ["HOROVOD_" + name] for name in ("RANK", "SIZE"))
place = "http://{}:{}/global/".format(*(os.environ["HOROVOD_GLOO_RENDEZVOUS_" + name] for name in ("ADDR", "PORT")))
assert os.environ["HOROVOD_GLOO_IFACE"]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def ask(key):
    for _ in range(500):
        try:
            return opener.open(place + key, timeout=5).read().decode()
        except urllib.error.HTTPError:
            time.sleep(0.02)

opener.open(urllib.request.Request(place + rank, data=rank.encode(), method="PUT"), timeout=5)
print("met", ",".join(ask(str(other)) for other in range(int(size))), flush=True)
"""

# A sum over all ranks, with nothing but the MPI library itself.
MPI = """
import ctypes, os

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)

def symbol(name):
    return ctypes.byref(ctypes.c_char.in_dll(mpi, "ompi_mpi_" + name))

mpi.MPI_Init(None, None)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(symbol("comm_world"), ctypes.byref(rank))
mpi.MPI_Comm_size(symbol("comm_world"), ctypes.byref(size))
own = ctypes.c_int(rank.value + 1)
mpi.MPI_Allreduce(ctypes.byref(own), ctypes.byref(total), 1, symbol("int"), symbol("op_sum"), symbol("comm_world"))
line = "%d of %d: %d, %s\\n" % (rank.value, size.value, total.value, os.environ["WORD"])
os.write(1, line.encode())  # in one piece: mpirun puts pieces of different ranks into one line
mpi.MPI_Finalize()
"""
