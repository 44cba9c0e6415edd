"""What happens to a root while a service runs in it is noticed and said: it is renamed, removed, its lock goes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batchhvd.service import root_watch
from batchhvd.service.root_folder import lock
from batchhvd.service.root_watch import RootWatch, WatchedTicks
from batchhvd.wire import local_service
from tests.support.waiting import until

GROUP = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/g"


def caller(running: Any) -> Callable[..., httpx.Response]:
    """Returns what sends requests without looking into the root, which will not be there."""
    url, headers = running.url, {"Authorization": f"Bearer {running.token}"}
    version = "?api-version=2019-06-01"
    return lambda method, body=None: httpx.request(method, url + GROUP + version, json=body, headers=headers)


def start_another(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "batchhvd.service", "--root", str(root)]
    return subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)


def test_a_lock_that_is_removed_lets_no_second_service_in_and_comes_back(launch: Any) -> None:
    running = launch()
    (running.root / "lock").unlink()
    second = start_another(running.root)
    assert (second.returncode, second.stdout.strip()) == (3, running.url)
    until(lambda: local_service.find(running.root), 10)
    assert "was removed while the service runs; it was made again" in (running.root / "service.log").read_text()
    assert start_another(running.root).returncode == 3
    assert running.call("PUT", GROUP, {"location": "x"}).status_code == 201


def test_a_root_that_is_renamed_is_named_in_answers_and_log(launch: Any) -> None:
    running = launch()
    assert running.call("PUT", GROUP, {"location": "x"}).status_code == 201
    away, call = running.root.with_name("away"), caller(running)
    running.root.rename(away)
    try:
        told = f"The folder {running.root} of this service (process {running.process.pid}) is not there any more"
        for method, body in (("GET", None), ("PUT", {"location": "x"})):
            answer = call(method, body)
            assert answer.status_code == 410 and answer.json()["error"]["code"] == "RootGone"
            assert answer.json()["error"]["message"].startswith(told)
        until(lambda: told in (away / "service.log").read_text(), 10)
    finally:
        away.rename(running.root)
    assert running.call("GET", GROUP).status_code == 200
    until(lambda: "is back" in (running.root / "service.log").read_text(), 10)


def test_another_folder_in_the_place_of_the_root_is_left_alone(launch: Any) -> None:
    running = launch()
    away, call = running.root.with_name("copy"), caller(running)
    running.root.rename(away)
    running.root.mkdir()
    try:
        answer = call("GET")
        assert answer.status_code == 410 and "is another one now" in answer.json()["error"]["message"]
    finally:
        running.stop(signal.SIGKILL)
    assert not list(running.root.iterdir())  # it wrote nothing into a folder that is not its own
    assert (away / "state.sqlite").exists()


class Ticks:
    """A scheduler that counts its ticks."""

    pause, count = 0.1, 0

    def tick(self) -> None:
        self.count += 1


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[Path, RootWatch]]:
    root = tmp_path / "wurzel ü"
    with lock(root) as watch:
        assert watch is not None
        yield root, watch


def test_nothing_is_judged_while_the_root_is_away(held: tuple[Path, RootWatch]) -> None:
    root, watch = held
    scheduler = Ticks()
    ticks = WatchedTicks(scheduler, watch)
    ticks.tick()
    root.rename(root.with_name("away"))
    ticks.tick()
    assert (scheduler.count, bool(watch.problem())) == (1, True)
    root.with_name("away").rename(root)
    ticks.tick()
    assert (scheduler.count, watch.problem(), ticks.pause) == (2, "", 0.1)


def test_the_folder_itself_is_locked(held: tuple[Path, RootWatch], monkeypatch: pytest.MonkeyPatch) -> None:
    root, watch = held
    (root / "lock").unlink()
    began = time.monotonic()
    with lock(root) as second:
        assert second is None
    assert time.monotonic() - began < 10
    monkeypatch.setattr(root_watch, "_GRACE", 0.0)
    for _ in range(2):
        (root / "lock").unlink()
        for _ in range(3):
            watch.look()
        assert (root / "lock").exists()
