"""Slurm's own side of a run: waiting, nodes that die or are drained, preemption, a controller that is away."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchhvd.engines.base import ENDED
from batchhvd.engines.slurm import Slurm
from batchhvd.errors import EngineError
from batchhvd.service.job_script import script as exported
from tests.support.slurm import Bed, beds
from tests.support.stage import Stage
from tests.support.waiting import within

pytestmark = pytest.mark.slurm


@pytest.fixture
def stage(slurm: Bed, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(lambda: Slurm(bin=str(slurm.bin), wait=30, pause=0.05), tmp_path / "the röot")
    yield stage
    stage.end()


@pytest.fixture
def whole(slurm: Bed) -> Iterator[Bed]:
    """The bed, whose nodes are all in order again afterwards."""
    yield slurm
    for name in slurm.nodes:
        if name not in {path.name for path in (slurm.folder / "run").iterdir()}:
            slurm("node-start", name)
    deadline = time.monotonic() + 40
    while states := [line.split() for line in slurm.slurm("sinfo", "-hN", "-p", "main", "-o", "%N %T").splitlines()]:
        if {state for _, state in states} == {"idle"}:
            break
        assert time.monotonic() < deadline, states
        for name, state in states:
            if state.startswith(("down", "drain")):  # it may come back by itself in this moment
                command = [str(slurm.bin / "scontrol"), "update", f"nodename={name}", "state=resume"]
                subprocess.run(command, capture_output=True)
        time.sleep(0.1)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Bed, Stage]]:
    """A second cluster, of two nodes: after an outage, Slurm takes a minute to believe that a job has ended."""
    with beds(tmp_path, "--nodes", "2") as bed:
        stage = Stage(lambda: Slurm(bin=str(bed.bin), wait=30, pause=1), tmp_path / "the röot")
        yield bed, stage
        stage.end()


def job(handle: str) -> str:
    """Returns the number of Slurm's job."""
    return handle.partition(" ")[0]


def again(bed: Bed, handle: str, seconds: float = 20) -> None:
    """Lets a requeued job start now: Slurm would keep it for two minutes."""
    deadline = time.monotonic() + seconds
    while bed.slurm("squeue", "-h", "-j", job(handle), "-o", "%T %r") not in ("PENDING BeginTime\n",):
        assert time.monotonic() < deadline, bed.slurm("squeue")
        time.sleep(0.05)
    bed.slurm("scontrol", "update", f"jobid={job(handle)}", "starttime=now")


def host(stage: Stage, folder: str, index: int) -> str:
    """Returns the machine on which a node of the task runs."""
    return str(json.loads((Path(folder) / f"node-{index}.json").read_text())["host"])


# Counts to 20 and goes on from where the run before had come to, as a training goes on from its checkpoint.
RESUMES = """
touch "begun-$HOROVOD_RANK-${SLURM_RESTART_COUNT:-0}"
for step in $(seq $(( $(cat "count-$HOROVOD_RANK" 2>/dev/null || echo 0) + 1 )) 20); do
    echo $step > "new-$HOROVOD_RANK" && mv "new-$HOROVOD_RANK" "count-$HOROVOD_RANK"
    [ "${SLURM_RESTART_COUNT:-0}" = 0 ] && [ $step -ge 5 ] && exec sleep 600
    sleep 0.01
done
echo "rank $HOROVOD_RANK at $(cat "count-$HOROVOD_RANK")"
"""


def resuming(stage: Stage, nodes: int) -> tuple[str, str]:
    """Starts a task that hangs in its first run after five steps; returns its handle and its folder."""
    folder = f"{stage.root}/täsk one"
    task = stage.task(f'cd "{folder}"\n{RESUMES}', nodes=nodes)
    handle = stage.start(task)
    for rank in range(nodes):
        stage.until(task, f"begun-{rank}-0")
        deadline = time.monotonic() + 20
        stage.until(task, f"count-{rank}")
        while (Path(folder) / f"count-{rank}").read_text().strip() != "5":
            assert time.monotonic() < deadline
            time.sleep(0.02)
    return handle, folder


def test_a_node_that_dies_is_replaced_and_the_run_goes_on_where_it_was(stage: Stage, whole: Bed) -> None:
    handle, folder = resuming(stage, 2)
    lost = host(stage, folder, 1)
    whole("node-kill", lost)
    assert stage.engine.status([handle])[handle].state == "running"  # Slurm has not noticed
    whole.slurm("scontrol", "update", f"nodename={lost}", "state=down", "reason=power")
    status = stage.wait(handle, lambda status: status.state == "queued")
    assert (status.attempt, status.reason.startswith("it waits in Slurm's queue (BeginTime")) == (2, True)
    again(whole, handle)
    status = stage.wait(handle, lambda status: status.state in ENDED)
    assert (status.state, status.exit_code, status.attempt) == ("succeeded", 0, 2)
    assert lost not in {host(stage, folder, index) for index in range(2)}
    assert sorted((Path(folder).parent / "lögs of täsk one" / "stdout.txt").read_text().splitlines()) == [
        "rank 0 at 20",
        "rank 1 at 20",
    ]
    assert (Path(folder) / "attempt-1" / "node-1.json").exists()


# The second rank is on the node that dies; the first one fails when it is told that the connection is cut.
MISSES = """
touch "begun-$HOROVOD_RANK"
[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0
[ "$HOROVOD_RANK" = 1 ] && exec sleep 600
until [ -e cut ]; do sleep 0.05; done
exit 1
"""


def test_a_rank_that_fails_for_want_of_a_dead_node_does_not_end_the_run(stage: Stage, whole: Bed) -> None:
    folder = Path(stage.root, "täsk one")
    task = stage.task(f'cd "{folder}"\n{MISSES}')
    handle = stage.start(task)
    for rank in range(2):
        stage.until(task, f"begun-{rank}")
    lost = host(stage, str(folder), 1)
    whole("node-kill", lost)
    (folder / "cut").touch()
    deadline = time.monotonic() + 30
    while json.loads((folder / "node-0.json").read_text())["state"] != "ended":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    whole.slurm("scontrol", "update", f"nodename={lost}", "state=down", "reason=power")
    stage.wait(handle, lambda status: status.state == "queued")  # not failed, though a rank had
    again(whole, handle)
    status = stage.wait(handle, lambda status: status.state in ENDED)
    assert (status.state, status.exit_code, status.attempt) == ("succeeded", 0, 2)
    assert json.loads((folder / "attempt-1/stop.json").read_text())["reason"] == "rank"


def test_a_run_that_others_push_aside_starts_again(stage: Stage, whole: Bed) -> None:
    handle, folder = resuming(stage, 4)
    urgent = Stage(lambda: Slurm(bin=str(whole.bin), wait=30, pause=0.05, partition="urgent"), stage.root / "urgent")
    assert urgent.run(urgent.task("true", nodes=4)).state == "succeeded"
    assert stage.engine.status([handle])[handle].state == "queued"
    again(whole, handle)
    status = stage.wait(handle, lambda status: status.state in ENDED)
    assert (status.state, status.attempt) == ("succeeded", 2), status


def test_cancelling_a_run_that_waits_to_start_again(stage: Stage, whole: Bed) -> None:
    handle, _ = resuming(stage, 2)
    whole.slurm("scontrol", "requeue", job(handle))
    stage.wait(handle, lambda status: status.state == "queued")
    stage.engine.cancel(handle)
    status = stage.wait(handle, lambda status: status.state in ENDED)
    assert (status.state, status.reason) == ("cancelled", "cancelled")


def test_a_run_that_is_too_large_waits_with_the_reason(stage: Stage, whole: Bed) -> None:
    whole.slurm("scontrol", "update", "nodename=node4", "state=drain", "reason=new cables")
    engine = Slurm(bin=str(whole.bin), wait=30)
    assert engine.nodes() == 4
    assert engine.node_states() == {"node4": "drained: new cables"}
    handle = stage.start(stage.task("true", nodes=4))
    status = stage.wait(
        handle, lambda status: status.state == "queued" and re.search("[Rr]equired|Req|Res", status.reason) is not None
    )
    assert status.reason.startswith("it waits in Slurm's queue")
    whole.slurm("scontrol", "update", "nodename=node4", "state=resume")
    assert stage.wait(handle, lambda status: status.state in ENDED).state == "succeeded"


def test_the_signal_before_the_time_limit_reaches_the_ranks_only(stage: Stage, slurm: Bed) -> None:
    folder = f"{stage.root}/täsk one"
    script = f"""trap 'echo saved >> "{folder}/saved"; saved=1' USR1
    touch "{folder}/on-$HOROVOD_RANK"
    until [ "$saved" ]; do sleep 0.05; done
    sleep 0.5"""
    task = stage.task(script)
    handle = stage.start(task)
    for rank in range(2):
        stage.until(task, f"on-{rank}")
    slurm.slurm("scancel", "--signal=USR1", job(handle))  # what the option signal=USR1@120 makes Slurm do
    status = stage.wait(handle, lambda status: status.state in ENDED)
    assert (status.state, Path(folder, "saved").read_text()) == ("succeeded", "saved\n" * 2)


def test_what_others_do_to_a_job_in_slurm_is_told(stage: Stage, slurm: Bed) -> None:
    task = stage.task('touch "$HERE/on"; sleep 600', environment={"HERE": f"{stage.root}/täsk one"})
    handle = stage.start(task)
    stage.until(task, "on")
    slurm.slurm("scancel", job(handle))
    status = stage.wait(handle, lambda status: status.state in ENDED)
    assert (status.state, status.error) == ("cancelled", "the job was cancelled in Slurm")


def test_runners_that_cannot_start_are_an_error_of_the_engine(stage: Stage, slurm: Bed) -> None:
    stage.engine = Slurm(bin=str(slurm.bin), wait=30, pause=0.05, python="/no/such/python")
    status = stage.run(stage.task("true"))
    assert (status.state, status.reason, status.error) == (
        "failed",
        "engine",
        "no node's runner has left a record",
    )
    assert any("/no/such/python" in line for line in status.tail)


def test_a_runner_killed_on_its_node_fails_the_run(stage: Stage, slurm: Bed) -> None:
    task = stage.task(
        'echo $PPID > "$HERE/pid-$HOROVOD_RANK"; sleep 600', environment={"HERE": f"{stage.root}/täsk one"}
    )
    handle = stage.start(task)
    stage.until(task, "pid-1")
    runner = (Path(task.folder) / "pid-1").read_text().strip()
    slurm("on-node", host(stage, task.folder, 1), "sh", "-c", f"kill -9 $(ps -o ppid= -p {runner}) {runner}")
    status = stage.wait(handle, lambda status: status.state in ENDED)
    assert (status.state, status.reason, status.node) == ("failed", "node", task.nodes[1])


def test_a_job_that_slurm_has_forgotten_is_told_from_its_records(stage: Stage) -> None:
    good, bad = stage.task("true"), stage.task("exit 5", name="bad")
    handles = [stage.start(task) for task in (good, bad)]
    for handle in handles:
        stage.wait(handle, lambda status: status.state in ENDED)
    forgotten = [f"99999{handle[handle.index(' ') :]}" for handle in handles]
    states = stage.make().status(forgotten)
    assert [states[handle].state for handle in forgotten] == ["succeeded", "failed"]
    assert states[forgotten[1]].exit_code == 5


def test_a_submission_cut_off_before_its_number_was_kept_is_found(stage: Stage, slurm: Bed) -> None:
    task = stage.task("echo once; sleep 1")
    handle = stage.start(task)
    (Path(task.folder) / "slurm.json").unlink()
    assert stage.make().submit(task) == handle
    stage.wait(handle, lambda status: status.state in ENDED)
    assert stage.lines(task) == ["once"] * 2


def test_devices_and_options_reach_the_ranks(stage: Stage, slurm: Bed) -> None:
    task = stage.task(
        'echo "$CUDA_VISIBLE_DEVICES $SLURM_JOB_PARTITION"', options={"gres": "gpu:2", "partition": "urgent"}
    )
    stage.run(task)
    assert stage.lines(task) == ["0,1 urgent"] * 2


def test_slurm_refuses_what_it_cannot_give(stage: Stage) -> None:
    with pytest.raises(EngineError, match="sbatch rejected the job") as caught:
        stage.engine.submit(stage.task("true", options={"partition": "nowhere"}))
    assert "invalid partition" in caught.value.output
    assert caught.value.exit_code == 1


def test_an_exported_script_runs_by_itself_and_again(slurm: Bed, tmp_path: Path) -> None:
    share = {"azureFileUrl": "https://a.file.core.windows.net/s", "accountName": "a", "relativeMountPath": "ü"}
    properties = {
        "nodeCount": 2,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/ü",
        "mountVolumes": {"azureFileShares": [share]},
        "horovodSettings": {"pythonScriptFilePath": "$AZ_BATCHAI_JOB_MOUNT_ROOT/ü/it.py"},
    }
    folder = tmp_path / "the jöb"
    (folder / "mounts/ü").mkdir(parents=True)
    (folder / "mounts/ü/it.py").write_text("import os, socket; print(os.environ['HOROVOD_RANK'], socket.gethostname())")
    (tmp_path / "job.sh").write_text(exported("slurm", {"properties": properties}, folder))
    for count in (1, 2):
        slurm.slurm("sbatch", "--wait", "--quiet", str(tmp_path / "job.sh"))
        lines = (folder / "mounts/ü/the jöb/stdouterr/stdout.txt").read_text().splitlines()
        assert len(lines) == 2 * count
        assert {line.split()[0] for line in lines} == {"0", "1"}


def test_an_ordinary_user_runs_as_himself(slurm: Bed) -> None:
    """A user who is not root, on the login node, with a folder of his own."""
    user = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    path = os.pathsep.join(filter(None, sys.path)) + os.pathsep + str(Path(__file__).parents[3])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "BIN": str(slurm.bin)}
    for python in map(os.path.realpath, (sys.executable, "/usr/bin/python3")):
        check = ["sh", "-c", f"test -x {python} && {python} -c 'import batchhvd.engines.slurm'"]
        if subprocess.run([*user, *check], env=environment, capture_output=True).returncode == 0:
            break
    else:
        pytest.skip("no interpreter here can be run by another user")
    folder = slurm.folder / "hömé"  # not below pytest's folder, which it keeps to itself
    slurm.folder.chmod(0o755)
    folder.mkdir()
    os.chown(folder, 1, 1)
    command = [str(slurm.bin / "on-head"), *user, python, "-c", ORDINARY, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd="/")
    assert done.stdout.split() == ["succeeded", "1"], f"{done.stdout}\n{done.stderr}"


ORDINARY = """
import os, sys, time
from batchhvd.engines.base import ENDED, Task
from batchhvd.engines.slurm import Slurm

engine, folder = Slurm(bin=os.environ["BIN"], wait=30, pause=0.05), sys.argv[1] + "/run"
place = {"folder": folder, "logs": folder + "/logs", "nodes": ("a",), "ranks": (1,)}
handle = engine.submit(Task(name="own", launch="single", command="id -u", **place))
deadline = time.monotonic() + 40
while (status := engine.status([handle])[handle]).state not in ENDED and time.monotonic() < deadline:
    time.sleep(0.1)
print(status.state, status.error, *status.tail, file=sys.stderr)
print(status.state, open(folder + "/logs/stdout.txt").read())
"""


def test_a_controller_that_is_away_makes_no_run_lost(small: tuple[Bed, Stage]) -> None:
    bed, stage = small
    loop = 'touch "$HERE/on"; until [ -e "$HERE/go" ]; do sleep 0.05; done'
    tasks = [stage.task(loop, nodes=1, name=name, environment={"HERE": f"{stage.root}/{name}"}) for name in ("ä", "b")]
    handles = [stage.start(task) for task in tasks]
    for task in tasks:
        stage.until(task, "on")
    bed("controller-stop")
    try:
        found = stage.engine.status(handles)
        assert {(status.state, status.reason) for status in found.values()} == {
            ("running", "Slurm's controller does not answer")
        }
        (Path(tasks[0].folder) / "go").touch()
        ended = stage.wait(handles[0], lambda status: status.state in ENDED)
        assert (ended.state, ended.exit_code) == ("succeeded", 0)
    finally:
        bed("controller-start")
    stage.engine = stage.make()
    assert stage.wait(handles[1], lambda status: status.state == "running").reason == ""
    (Path(tasks[1].folder) / "go").touch()
    assert stage.wait(handles[1], lambda status: status.state in ENDED).state == "succeeded"
    assert stage.engine.status(handles)[handles[0]].state == "succeeded"


# -- how fast it is ----------------------------------------------------------------------------------------------------


def test_the_first_line_comes_soon_on_idle_nodes(stage: Stage) -> None:
    def first_line(number: int) -> float:
        task = stage.task("echo here", nodes=4, name=f"try {number}")
        begun = time.monotonic()
        handle = stage.start(task)
        while not stage.text(task):
            assert time.monotonic() - begun < 30
            time.sleep(0.01)
        took = time.monotonic() - begun
        stage.wait(handle, lambda status: status.state in ENDED)  # the nodes are idle again
        return took

    assert within(2.0, first_line)


def test_hundreds_of_handles_are_told_with_one_question(stage: Stage, slurm: Bed) -> None:
    handles = []
    for number in range(500):
        folder = stage.root / f"run {number}"
        folder.mkdir(parents=True)
        (folder / "slurm.json").write_text(json.dumps({"job": str(number + 1), "nodes": ["a"]}))
        handles.append(f"{number + 1} {folder}")

    def told(_: int) -> float:
        engine, begun = stage.make(), time.monotonic()
        assert len(engine.status(handles)) == 500
        return time.monotonic() - begun

    assert within(0.5, told)
