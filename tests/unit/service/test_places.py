"""Places and processes: dollar signs in paths, what a kill leaves, whose process it is, errors that go again."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchhvd.errors import UnavailableError
from batchhvd.service.scheduler.task import Site
from batchhvd.service.store import trash
from batchhvd.wire import local_service
from batchhvd.wire.facts.process_start import ticks
from batchhvd.wire.facts.times import read_duration
from tests.support.faults import live
from tests.support.waiting import until
from tests.support.world import WORKSPACE, World


@pytest.mark.parametrize("name", ["a$HOME b", "x${PATH}y", "$AZ_BATCHAI_JOB_MOUNT_ROOT", "$$"])
def test_a_root_with_a_dollar_sign_keeps_what_a_job_writes(name: str, tmp_path: Path) -> None:
    with live(tmp_path / name, nodes=1) as world:
        command = 'echo kept > "$AZ_BATCHAI_JOB_MOUNT_ROOT/ablage ü/kept" && pwd && echo $AZ_BATCHAI_SHARED_JOB_TEMP'
        world.job("j", customToolkitSettings={"commandLine": command})
        assert world.ended("j") == "succeeded", world.info("j")
        assert (world.root / "shares/acc/share/kept").read_text() == "kept\n"
        assert str(world.root) in world.log("j").splitlines()[1]
        world.store.close()


def test_an_interpreter_with_a_dollar_sign_in_its_path_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "py$HOME"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    with live(tmp_path / "root", nodes=1) as world:
        world.site = Site(python=str(folder / "python3"), prepare="skip")
        world.restart()
        world.command("j", "command -v python3")
        assert world.ended("j") == "succeeded", world.info("j")
        assert world.log("j") == f"{folder}/python3\n"
        world.store.close()


def test_two_slashes_lead_where_one_does(tmp_path: Path) -> None:
    with live(tmp_path / "root", nodes=1) as world:
        place = "$AZ_BATCHAI_JOB_MOUNT_ROOT//ablage ü//logs/"
        world.job("j", stdOutErrPathPrefix=place, customToolkitSettings={"commandLine": "echo here"})
        assert world.ended("j") == "succeeded", world.info("j")
        (found,) = (world.root / "shares/acc/share/logs").rglob("stdout.txt")
        assert found.read_text() == "here\n"
        world.store.close()


def test_what_a_kill_leaves_of_a_deletion_goes_at_the_next_start(tmp_path: Path) -> None:
    left = [tmp_path / place for place in ("tasks/.deleted-1", "shares/.deleted-2", "trash/3")]
    for path in left:
        (path / "deep").mkdir(parents=True)
        (path / "deep" / "file").touch()
    (tmp_path / "tasks" / "kept").mkdir()
    trash.empty(tmp_path)
    until(lambda: not any(path.exists() for path in left), 60)
    assert (tmp_path / "tasks" / "kept").is_dir()


@pytest.mark.parametrize("text", ["PT0.00001S", "PT0.0000001S", "0:0:0.00009", "PT١S", "P７D", "1:٢:3"])
def test_durations_that_not_every_reader_takes_are_none(text: str) -> None:
    assert read_duration(text) is None


def test_a_pid_that_another_process_was_given_is_not_signalled(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger, open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a service starts, and has not announced itself
        about: dict[str, Any] = {"pid": stranger.pid, "ticks": (ticks(stranger.pid) or 0) - 1}
        (tmp_path / "service.json").write_text(json.dumps(about))
        assert local_service.find(tmp_path) is None and not local_service.stop(tmp_path)
        assert stranger.poll() is None
        about["ticks"] = ticks(stranger.pid)
        (tmp_path / "service.json").write_text(json.dumps(about))
        found = local_service.find(tmp_path)
        assert found is not None and found.pid == stranger.pid
        stranger.kill()


def test_a_pid_without_its_start_time_is_never_signalled(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger, open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for about in ({"pid": stranger.pid}, {"pid": stranger.pid, "ticks": None}):
            (tmp_path / "service.json").write_text(json.dumps(about))
            with pytest.raises(UnavailableError, match=f"when process {stranger.pid} was started.*was not signalled"):
                local_service.stop(tmp_path)
        assert stranger.poll() is None
        stranger.kill()


def test_a_pid_that_changes_hands_between_look_and_signal_is_spared(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        assert not local_service._terminate(stranger.pid, (ticks(stranger.pid) or 0) - 1)
        assert stranger.poll() is None
        monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a number was signalled, not a process"))
        assert local_service._terminate(stranger.pid, ticks(stranger.pid))
        assert stranger.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": "x"}', '{"pid": 0}', '{"pid": -1}', "[" * 100_000])
def test_a_damaged_service_file_names_nobody(tmp_path: Path, text: str) -> None:
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (tmp_path / "service.json").write_text(text)
        assert local_service.find(tmp_path) is None and not local_service.stop(tmp_path)


def test_the_error_of_a_setup_goes_when_its_node_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    mount = {"azureFileUrl": "https://acc.file.core.windows.net/share", "relativeMountPath": "s"}
    volumes = {"azureFileShares": [{**mount, "accountName": "acc", "credentials": {}}]}
    task = {"commandLine": "true", "stdOutErrPathPrefix": "$AZ_BATCHAI_MOUNT_ROOT/s"}
    os.rename(tmp_path / "shares/acc/share", tmp_path / "away")
    world.cluster(nodes=1, nodeSetup={"mountVolumes": volumes, "setupTask": task})
    world.tick(2)
    assert [error["code"] for error in _errors(world)] == ["SetupTaskFailed"]
    os.rename(tmp_path / "away", tmp_path / "shares/acc/share")
    world.resize(0)
    world.tick(2)
    world.resize(1)
    world.tick(2)
    world.engine.end(world.engine.running()[0].folder)
    world.tick(2)
    assert (_errors(world), world.counts()) == ([], {"idle": 1})


def _errors(world: World) -> Any:
    record = world.store.get(f"{WORKSPACE}/clusters/c")
    assert record is not None
    return record.document["properties"].get("errors", [])
