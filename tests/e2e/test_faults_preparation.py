"""Preparations in a copy-on-write view: what they install is there for the ranks and nowhere else."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faults import Live, live, processes
from tests.support.stage import PYTHON
from tests.support.waiting import until


@pytest.fixture(scope="session", autouse=True)
def possible() -> None:
    """Skips where no view can be made."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("a copy-on-write view needs root and the right to mount")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "wurzel ü", prepare="overlay") as world:
        yield world


def prepare(world: Live, name: str, preparation: str, command: str = "true", nodes: int = 2) -> str:
    world.command(name, command, nodes, jobPreparation={"commandLine": preparation})
    return world.ended(name)


def test_a_preparation_changes_the_ranks_world_and_not_the_machine(world: Live, tmp_path: Path) -> None:
    machine = tmp_path / "machine ü"  # lies on the machine's disk and outside the service's folder
    machine.mkdir()
    (machine / "there").write_text("there\n")
    preparation = f"cd '{machine}'; echo made > made; rm there; pip --version; echo done; echo to stderr >&2"
    command = f"cd '{machine}' && cat made && ! ls there && echo own > own && cat own"
    assert prepare(world, "j", preparation, command) == "succeeded", world.info("j")
    assert sorted(world.log("j").split()) == ["made", "made", "own", "own"]
    assert {path.name: path.read_text() for path in machine.iterdir()} == {"there": "there\n"}
    names = world.of("j").private["nodes"]
    for name in names:  # each node's log has all of it, although it ran once
        assert world.log("j", f"stdout-job_prep-{name}.txt").endswith("done\n")
        assert world.log("j", f"stderr-job_prep-{name}.txt") == "to stderr\n"
    assert sum("is done already" in world.execution_log("j", index) for index in (0, 1)) == 1


def test_it_runs_once_for_each_distinct_command(world: Live) -> None:
    (world.root / "count").mkdir()
    seen = "echo prepared; date +%N"
    for name in ("j", "k"):
        assert prepare(world, name, seen) == "succeeded", world.info(name)
    first, second = (world.log(n, f"stdout-job_prep-{world.of(n).private['nodes'][0]}.txt") for n in ("j", "k"))
    assert first == second
    assert prepare(world, "l", seen + "; true") == "succeeded"
    assert world.log("l", f"stdout-job_prep-{world.of('l').private['nodes'][0]}.txt") != first


def test_layers_that_nobody_has_used_for_long_are_removed(world: Live) -> None:
    for name in ("old", "young"):
        assert prepare(world, name, f"echo {name}", nodes=1) == "succeeded"
    old = next(p.parent for p in (world.root / "layers").glob("*/done") if "old" in p.read_text())
    os.utime(old, (0, 0))
    assert prepare(world, "j", "echo another", nodes=1) == "succeeded"
    assert not old.exists()
    assert len(list((world.root / "layers").glob("*/done"))) == 2


def test_a_failing_preparation_is_a_failure_of_its_own_and_is_not_kept(world: Live) -> None:
    assert prepare(world, "j", "echo almost; exit 7", "echo never") == "failed"
    assert world.error("j")[0] == "JobPreparationFailed"
    assert world.info("j")["exitCode"] == 7
    assert world.log("j") == ""
    assert [path for path in (world.root / "layers").iterdir() if path.is_dir()] == []


def test_its_processes_end_with_it(world: Live) -> None:
    assert prepare(world, "j", "setsid sleep 1000 & echo on", nodes=1) == "succeeded"
    assert not processes(world.root)


def test_a_job_can_be_terminated_while_it_prepares(world: Live) -> None:
    world.command("j", "echo never", 2, jobPreparation={"commandLine": "trap '' TERM; while true; do sleep 0.1; done"})
    logs = world.root / "shares/acc/share/s"
    until(lambda: world.tick() or any("preparation:" in path.read_text() for path in logs.rglob("execution-*.log")))
    world.terminate("j")
    assert world.ended("j") == "failed"
    assert world.error("j")[0] == "JobTerminated"


def test_shares_folder_and_logs_are_the_real_ones(world: Live) -> None:
    command = 'echo kept > "$AZ_BATCHAI_JOB_MOUNT_ROOT/ablage ü/kept"; echo t > "$AZ_BATCHAI_SHARED_JOB_TEMP/t"'
    assert prepare(world, "j", "true", command, nodes=1) == "succeeded"
    assert (world.root / "shares/acc/share/kept").read_text() == "kept\n"
    assert (world.folder("j") / "shared" / "t").exists()


VIEW = """
import os, sys
from pathlib import Path
from batchhvd.node.sandbox.mounting import mounted, own_mounts, remove
from batchhvd.node.sandbox.view import MachineView

base = Path(sys.argv[1])
own_mounts()
before = mounted()
try:
    MachineView(base / "view", base / "changes", None, [base / "real", Path("/no such folder")])
except OSError as error:
    print("refused:", error.strerror)
assert mounted() == before, "something stayed mounted"
view = MachineView(base / "view", base / "changes", None, [base / "real"])
for folder in (base / "view", base):
    try:
        remove(folder)
    except OSError as error:
        print("kept:", error.strerror)
view.close()
remove(base / "view")
print(sorted(path.name for path in base.iterdir()), (base / "real" / "file").read_text())
"""


def test_a_view_is_whole_or_not_there_and_nothing_is_removed_through_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("still here")
    done = subprocess.run([PYTHON, "-c", VIEW, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kept = "kept: something is mounted there\n"
    assert done.stdout == f"refused: No such file or directory\n{kept}{kept}['changes', 'real'] still here\n"


def test_many_nodes_share_a_layer_at_the_same_moment(world: Live) -> None:
    world.resize(6)
    world.tick(3)
    assert prepare(world, "j", "echo once", "true", nodes=6) == "succeeded", world.info("j")
    assert prepare(world, "k", "echo once", "true", nodes=6) == "succeeded", world.info("k")
    assert all("is done already" in world.execution_log("k", index) for index in range(6))
    assert not any("is copied" in world.execution_log(name, index) for name in ("j", "k") for index in range(6))


def test_nothing_stays_mounted(world: Live) -> None:
    assert prepare(world, "j", "true", nodes=1) == "succeeded"
    assert str(world.root).replace(" ", "\\040") not in Path("/proc/self/mountinfo").read_text()
    leftovers = {path.name for path in world.folder("j").iterdir()}
    assert not {name for name in leftovers if name.startswith(("view-", "changes-", ".room"))}


def test_where_it_is_not_wanted_it_is_skipped_with_a_notice(tmp_path: Path) -> None:
    with live(tmp_path / "wurzel ü", prepare="skip") as world:
        assert prepare(world, "j", "echo never", "echo ran", nodes=1) == "succeeded"
        assert "was skipped" in world.log("j", "stdout-job_prep.txt")
        assert "is skipped" in world.execution_log("j")
        assert world.log("j") == "ran\n"


def test_a_disk_that_is_full_gives_a_clear_error_and_no_broken_database(tmp_path: Path) -> None:
    root = tmp_path / "wurzel ü"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(root)], check=True)
    try:
        with live(root, nodes=2) as world:
            world.command("j", "while true; do seq 1000; done", 2)
            begun = time.monotonic()
            assert world.ended("j") == "failed"
            assert time.monotonic() - begun < 20
            assert world.error("j")[0] == "EngineFailed"
            assert "No space left on device" in world.error("j")[1]
            (root / "shares/acc/share/j.py").write_text("print('fine')\n")
            for path in (root / "shares/acc/share/s").rglob("stdout.txt"):
                path.unlink()
            world.command("k", "echo fine")
            assert world.ended("k") == "succeeded"
            world.store.close()
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)


MADE = [
    "echo made > made",
    'bash -c "mkdir d; echo made > d/made; mv d/made made"',
    'eval "echo made > \\"\\$AZ_BATCHAI_JOB""_TEMP/made\\""',
    'eval "f=\\$AZ_BATCHAI_JOB""_TEMP_DIR"; echo made > "$f/made"; ln -s ../made made',
]


@pytest.mark.parametrize("preparation", MADE)
def test_its_effect_is_the_same_on_each_node_and_in_each_job(world: Live, preparation: str) -> None:
    for name in ("j", "k"):
        assert prepare(world, name, f"echo more > /opt/more; {preparation}", "cat made /opt/more") == "succeeded", (
            world.log(name, "stderr.txt")
        )
        assert world.log(name).split() == ["made", "more"] * 2
    assert not Path("/opt/more").exists()
    assert not list((world.root / "layers").glob("*/done"))  # those of ended nodes are gone


def test_an_uploaded_script_is_executable(tmp_path: Path) -> None:
    from batchhvd.service.storage.disk.disk import Disk

    umask = os.umask(0o022)
    try:
        disk = Disk(tmp_path)
        with disk.stage() as staged:
            assert os.fstat(staged.fd).st_mode & 0o777 == 0o755
    finally:
        os.umask(umask)
