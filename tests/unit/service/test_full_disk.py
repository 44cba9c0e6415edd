"""A full disk is told as such, loses nothing that was acknowledged, and is forgotten when there is room again."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchhvd.service.files.app import Files
from batchhvd.service.scheduler import layout, manifest
from batchhvd.service.status import verdict
from batchhvd.service.store import accounts, trouble
from batchhvd.wire.facts.causes import Cause
from tests.support.asked import ask, built
from tests.support.world import GROUP, WORKSPACE, World

VERSION = "?api-version=2018-05-01"


@pytest.fixture
def world(tmp_path: Path) -> World:
    root = tmp_path / "wurzel ü"
    root.mkdir()
    return World(root)


def application(world: World) -> Any:
    files = Files(world.root / "shares", lambda account: accounts.keys_of(world.store, account))
    return built(world.store, world.root, files)


def limit(world: World, pages: int) -> None:
    """Lets the database grow by no more than some pages, as on a disk that is full."""
    connection = world.store._connection()
    used = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {used + pages}")


def test_a_request_that_finds_no_room_says_so_and_changes_nothing(world: World) -> None:
    app = application(world)
    limit(world, 3)
    made = []
    for number in range(100):
        path = f"{WORKSPACE}/experiments/{'e' * 40}{number}"
        status, answer = ask(app, "PUT", path + VERSION)
        if status != 200:
            break
        made.append(path)
    assert (status, answer["error"]["code"]) == (507, "DiskFull")
    assert f"The disk of {world.root} is full" in answer["error"]["message"]
    for path in made:
        assert ask(app, "GET", path + VERSION)[0] == 200
    assert ask(app, "GET", path.rpartition("0")[0] + "none" + VERSION)[0] == 404
    limit(world, 100_000)
    assert ask(app, "PUT", path + VERSION)[0] == 200  # no transaction was left open
    assert not world.store._connection().in_transaction


def test_a_job_that_cannot_start_for_want_of_room_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(laid: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "mounts")

    monkeypatch.setattr(layout, "lay", full)
    world.cluster(nodes=1)
    world.job("j")
    world.tick(3)
    assert world.error("j") == ("DiskFull", trouble.disk_full(world.root))
    shown = verdict.of_job(world.of("j").document["properties"])
    assert shown["cause"] == Cause.DISK_FULL and "batchhvd prune" in shown["next"]


def test_outputs_are_sealed_when_there_is_room_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = manifest.seal

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "manifest.json")

    world.cluster(nodes=1)
    world.tick(3)
    world.job("j")
    world.tick()
    world.end("j")
    monkeypatch.setattr(manifest, "seal", full)
    world.tick(4, seconds=60)
    assert world.state("j") == "running"
    monkeypatch.setattr(manifest, "seal", real)
    world.tick(2)
    assert world.state("j") == "succeeded"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, if this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs root, to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_full_while_jobs_run(small_disk: Path) -> None:
    root = small_disk / "root"
    root.mkdir()
    world = World(root)
    app = application(world)
    world.cluster(nodes=3)
    world.tick(3)
    for name in ("a", "b"):
        world.job(name)
    world.tick()
    with (small_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    world.end("a")
    world.end("b", "failed", reason="rank", exit_code=3)
    for _ in range(3):
        try:
            world.tick(seconds=20)
        except Exception as error:
            assert trouble.is_disk_full(error), error
    assert {world.state("a"), world.state("b")} <= {"running", "failed"}
    status, answer = ask(app, "PUT", f"{WORKSPACE}/experiments/more{VERSION}")
    assert (status, answer["error"]["code"]) == (507, "DiskFull"), answer
    status, page = ask(app, "GET", "/status.json")
    assert status == 200 and page["clusters"][0]["errors"][0] == page["service"]["problem"] == trouble.disk_full(root)

    (small_disk / "filler").unlink()
    world.tick(3)
    assert (world.state("a"), world.state("b"), world.error("b")[0]) == ("succeeded", "failed", "RankFailed")
    assert ask(app, "PUT", f"{WORKSPACE}/experiments/more{VERSION}")[0] == 200
    assert world.store.get(GROUP) is not None
    world.store.close()
