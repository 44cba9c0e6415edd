"""Jobs in container images, for real: podman as root, with a storage of its own and an image made on the spot."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define

from batchhvd.engines.base import ENDED, Status, Task
from batchhvd.engines.processes import Processes
from tests.support.images import NAME, Podman, Registry, podman
from tests.support.waiting import until

LOOP = "while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with podman(tmp_path_factory.mktemp("images") / "podman") as found:
        yield found


@define
class Run:
    """A task in the small image."""

    folder: Path
    logs: Path
    status: Status

    def log(self, name: str) -> str:
        return (self.logs / name).read_text()

    @property
    def execution(self) -> str:
        """The log of its node, or of its first one."""
        return next(iter(sorted(self.logs.glob("execution*.log")))).read_text()

    @property
    def record(self) -> Any:
        return json.loads((self.folder / "node-0.json").read_text())


Starter = Callable[..., Run]


@pytest.fixture
def run(engine: Podman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    """Runs a task to its end; ``meanwhile`` acts on it once it has written to its standard output."""
    for name, value in engine.variables.items():
        monkeypatch.setenv(name, value)
    processes, handles = Processes(), list[str]()

    def start(command: str, *, meanwhile: Callable[[Run], object] | None = None, **more: Any) -> Run:
        folder = tmp_path / f"task-{len(handles)}"
        folder.mkdir()
        box = {"engine": "podman", "image": NAME, "server": "", "username": "", "password": "", "shm": ""}
        box |= more.pop("box", {})
        nodes = more.pop("nodes", 1)
        plain: dict[str, Any] = {"launch": "single", "ranks": (1,) * nodes}
        plain |= {"nodes": tuple(f"n{k}" for k in range(nodes)), "container": box}
        plain |= {"name": "t", "folder": str(folder), "logs": str(folder / "logs"), "command": command}
        task = Task(**plain | more)
        handles.append(processes.submit(task))
        found = Run(folder, folder / "logs", Status(state="queued"))
        if meanwhile is not None:
            until(lambda: (found.logs / "stdout.txt").exists() and found.log("stdout.txt"), 60)
            meanwhile(found)
        found.status = _end(processes, handles[-1])
        return found

    yield start
    for handle in handles:
        processes.cancel(handle)
        _end(processes, handle)
    assert engine.containers == [] and engine.images == [NAME]


def _end(processes: Processes, handle: str) -> Status:
    """Waits for the end of a run."""
    until(lambda: processes.status([handle])[handle].state in ENDED, 60)
    return processes.status([handle])[handle]


def test_ranks_and_preparation_see_the_image_and_share_its_changes(run: Starter) -> None:
    """Two nodes meet over the host's network; secrets and odd values arrive as they are."""
    ask = "exec 3<>/dev/tcp/$HOROVOD_GLOO_RENDEZVOUS_ADDR/$HOROVOD_GLOO_RENDEZVOUS_PORT && echo met"
    found = run(
        f'{ask}; echo "$HOROVOD_RANK of $HOROVOD_SIZE: $WHO $ODD"; cat /prepared; id -u; touch here; [ ! -e /usr/bin ]',
        nodes=2,
        launch="horovod",
        preparation="echo prepared >/prepared; echo says $WHO",
        secrets={"ODD": "it's $HOME\n`x` ü"},
    )
    lines = found.log("stdout.txt").splitlines()
    assert found.status.state == "succeeded", found.log("stderr.txt")
    assert lines.count("met") == lines.count("prepared") == lines.count("0") == 2
    assert {f"{rank} of 2: image it's $HOME" for rank in (0, 1)} <= set(lines) and lines.count("`x` ü") == 2
    assert found.log("stdout-job_prep-n1.txt") == "says image\n"
    assert found.record["preparation"]["where"] == "container"
    assert "podman runs localhost/small:1" in found.execution
    assert not Path("/prepared").exists()  # and not on this machine
    assert (found.logs / "work-n0" / "here").stat().st_uid == os.geteuid()
    assert not list(found.folder.glob("container-*"))


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("echo out; echo err >&2; exit 3", 3, "rank 0 ended with exit code 3"),
        ("kill -9 $$", 137, "rank 0 was killed by SIGKILL"),
    ],
)
def test_exit_codes_and_signals_are_those_of_the_rank(run: Starter, command: str, code: int, told: str) -> None:
    found = run(command)
    status = found.status
    assert (status.state, status.reason, status.exit_code, status.error) == ("failed", "rank", code, told)
    assert found.record["ranks"][0]["signal"] == (9 if code == 137 else None)


def test_a_rank_is_asked_to_end_before_it_is_killed(run: Starter) -> None:
    polite = run(f"trap 'echo saved; exit 5' TERM; echo on; {LOOP}", meanwhile=_cancel)
    assert polite.status.state == "cancelled"
    assert polite.log("stdout.txt") == "on\nsaved\n"
    stubborn = run(f"trap '' TERM; echo on; {LOOP}", meanwhile=_cancel, grace=0.5)
    assert stubborn.record["ranks"][0]["exit"] == 137


def test_the_time_limit_counts_in_a_container(run: Starter) -> None:
    assert run(f"echo on; {LOOP}", wall_seconds=3.0).status.reason == "time"


def _cancel(found: Run) -> None:
    Processes().cancel(str(found.folder))


def _kill_runner(found: Run) -> None:
    os.kill(found.record["pid"], signal.SIGKILL)


def _kill_both(found: Run) -> None:
    record = found.record
    os.kill(record["guard"]["pid"], signal.SIGKILL)
    os.kill(record["pid"], signal.SIGKILL)


def _kill_all(found: Run) -> None:
    """With the engine's own command, so that nobody tells the container that its input has ended."""
    mark = f"BATCHHVD_NODE={found.folder}:0".encode()
    alive = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _has(path, mark)]
    for pid in {*alive, found.record["guard"]["pid"], found.record["pid"]}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _has(process: Path, mark: bytes) -> bool:
    with contextlib.suppress(OSError):
        return mark in (process / "environ").read_bytes().split(b"\0")
    return False


@pytest.mark.parametrize("kill", [_kill_runner, _kill_both, _kill_all])
def test_a_killed_runner_leaves_no_container(run: Starter, engine: Podman, kill: Callable[[Run], None]) -> None:
    assert run(f"echo on; {LOOP}", meanwhile=kill).status.reason == "node"
    until(lambda: not engine.containers, 60)  # the engine itself takes its time when the machine is busy


def test_the_next_node_removes_what_was_left_and_nothing_else(run: Starter, engine: Podman, tmp_path: Path) -> None:
    """A machine that lost its power has no process left that could clean up."""
    over, alive = tmp_path / "over", tmp_path / "alive"
    for folder in (over, alive):
        folder.mkdir()
    (alive / "task.json").write_text("{}")
    for name, label in (("left", f"{over}:0"), ("other", f"{alive}:0"), ("strange", "mine")):
        engine("create", "--name", name, "--label", f"batchhvd.node={label}", NAME, "/bin/sh")
    engine("create", "--name", "foreign", NAME, "/bin/sh")
    found = run("true")
    assert "the container left of a node that was killed is removed" in found.execution
    assert sorted(engine.containers) == ["foreign", "other", "strange"]
    engine("rm", "--force", "foreign", "other", "strange")


def test_nothing_secret_is_in_a_command_line_or_left_in_a_file(run: Starter, engine: Podman) -> None:
    seen: list[str] = []

    def look(found: Run) -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(path.read_bytes().decode(errors="replace"))
            except OSError:
                continue
        for path in found.folder.glob("container-0/*.sh"):
            seen.append("a file of variables")
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        (name,) = engine.containers
        seen.append(engine("inspect", name) + engine("image", "inspect", NAME))  # what an image made of it would keep
        _cancel(found)

    found = run(f"echo on; {LOOP}", meanwhile=look, secrets={"TOKEN": "hunter2"})
    assert "a file of variables" in seen and any("batchhvd.node=" in line for line in seen)
    assert not any("hunter2" in line for line in seen)
    assert not any("hunter2" in path.read_text() for path in found.logs.iterdir() if path.is_file())


def test_an_image_from_an_archive_on_a_share_leaves_names_and_storage_as_they_were(
    run: Starter, engine: Podman, tmp_path: Path
) -> None:
    before = engine("image", "inspect", "--format", "{{.Id}}", NAME)
    assert run("echo $WHO", box={"image": f"oci-archive:{engine.archive}"}).log("stdout.txt") == "image\n"
    assert engine("image", "inspect", "--format", "{{.Id}}", NAME) == before
    other = tmp_path / "other.tar"
    engine("tag", NAME, "localhost/other:2")
    engine("save", "--quiet", "--output", str(other), "localhost/other:2")
    engine("untag", "localhost/other:2", "localhost/other:2")
    assert run("echo $WHO", box={"image": f"docker-archive:{other}"}).log("stdout.txt") == "image\n"
    assert engine.images == [NAME]


def test_an_image_that_cannot_be_had_ends_the_task_at_once(run: Starter, engine: Podman, tmp_path: Path) -> None:
    whole = engine.archive.read_bytes()
    (tmp_path / "cut").write_bytes(whole[: len(whole) // 2])
    gone = {"image": "localhost:1/none:1", "username": "me", "password": "hunter2"}
    for box, told in (
        ({"image": f"oci-archive:{tmp_path}/none"}, "the archive of the image does not exist"),
        ({"image": f"oci-archive:{tmp_path}/cut"}, "the archive of the image c"),
        (gone, "the image localhost:1/none:1 is not on this node, and it could not be pulled from its registry"),
    ):
        found = run("true", box=box)
        assert (found.status.state, found.status.reason) == ("failed", "image")
        assert found.status.error.startswith(told)
        assert "hunter2" not in found.execution + str(found.status)
        assert not list(found.folder.glob("container-*"))


def test_a_private_image_is_pulled_with_its_password_for_this_job_alone(run: Starter, engine: Podman) -> None:
    with Registry(engine.archive, "me", "hunter2").serving() as registry:
        mine = {"image": "team/private:1", "server": registry.image.partition("/")[0], "username": "me"}
        found = run("echo $WHO; sleep 1", box={**mine, "password": "hunter2"}, meanwhile=lambda _: _seen(engine))
        assert (found.status.state, found.log("stdout.txt")) == ("succeeded", "image\n"), found.status
        assert any("/manifests/" in path for path in registry.asked)
        for box in ({**mine, "password": "wrong"}, {**mine, "username": ""}):
            refused = run("true", box=box).status
            assert (refused.reason, "could not be pulled" in refused.error) == ("image", True)
            assert "hunter2" not in str(refused) + found.execution


def test_whoever_enters_a_node_is_in_its_image_and_leaves_nothing_there(run: Starter) -> None:
    said: list[tuple[int, str]] = []
    lines = [
        'echo "$WHO $TOKEN $AZ_BATCHAI_NODE_NAME"; pwd; [ -e /usr/bin ] && echo past the image; cat; exit 7',
        "sleep 20000 & echo $!",
        "trap 'echo caught; exit 3' TERM; kill -TERM $$; sleep 9",
    ]

    def enter(found: Run) -> None:
        for line in (*lines, f"[ -e /proc/{{}} ] && echo left; echo over; ls {found.folder}"):
            line = line.format(said[1][1].strip()) if len(said) == 3 else line
            words = [*Processes().entrance(str(found.folder), 0), "/bin/bash", "-c", line]
            done = subprocess.run(words, input="in", capture_output=True, text=True, timeout=60, check=False)
            said.append((done.returncode, done.stdout + done.stderr))
        _cancel(found)

    found = run(f"echo on; {LOOP}", meanwhile=enter, secrets={"TOKEN": "hunter2"})
    assert said[0] == (7, f"image hunter2 n0\n{found.folder}/temp/0\nin")
    assert said[1][0] == 0 and said[2] == (3, "caught\n")
    assert said[3][1].startswith("over\n")


def test_what_has_entered_an_image_ends_with_the_job(run: Starter) -> None:
    entered: list[subprocess.Popen[str]] = []

    def enter(found: Run) -> None:
        words = [*Processes().entrance(str(found.folder), 0), "/bin/sh", "-c", f"echo in; {LOOP}"]
        entered.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        assert entered[0].stdout and entered[0].stdout.readline() == "in\n"
        _cancel(found)

    run(f"echo on; {LOOP}", meanwhile=enter)
    with entered[0] as process:
        assert process.wait(30) in (128 + signal.SIGHUP, 128 + signal.SIGKILL)


def _seen(engine: Podman) -> None:
    """No other job finds the image by its name, and no process shows the password."""
    assert not any("team/private" in name for name in engine.images)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert b"hunter2" not in path.read_bytes()
        except OSError:
            continue


def test_what_does_not_start_is_told_with_what_the_engine_said(run: Starter, engine: Podman, tmp_path: Path) -> None:
    subprocess.run(["tar", "-cf", str(tmp_path / "empty.tar"), "-T", "/dev/null"], check=True)
    engine("import", "--quiet", str(tmp_path / "empty.tar"), "localhost/empty:1")
    found = run("true", box={"image": "localhost/empty:1"}).status
    assert (found.reason, found.error) == (
        "container",
        "podman could not start a container of the image localhost/empty:1",
    )
    assert "/bin/sh" in " ".join(found.tail)
    engine("rmi", "localhost/empty:1")


def test_a_preparation_that_fails_in_the_image_ends_the_task(run: Starter) -> None:
    found = run("echo ran", preparation="echo broken >&2; exit 9")
    assert (found.status.reason, found.status.exit_code) == ("preparation", 9)
    assert found.log("stderr-job_prep.txt") == "broken\n"
