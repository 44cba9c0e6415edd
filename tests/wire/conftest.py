"""A running service for the tests that speak to it, as a process of its own on a free port."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import define, field

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000001"


@define
class Running:
    """A service process, its address and its token."""

    root: Path
    process: subprocess.Popen[str]
    client: httpx.Client = field(factory=lambda: httpx.Client(trust_env=False, timeout=60))

    @property
    def url(self) -> str:
        return (self.root / "endpoint").read_text().strip()

    @property
    def token(self) -> str:
        return (self.root / "token").read_text().strip()

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """Sends one request with the token; ``api-version`` is added where it is missing."""
        query = "" if "api-version=" in path else ("&" if "?" in path else "?") + "api-version=2018-05-01"
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        url = path if path.startswith("http") else self.url + path + query
        known = {"Authorization": f"Bearer {self.token}", **headers}
        return self.client.request(method, url, content=content, headers=known)

    def finish(self, answer: httpx.Response, seconds: float = 20) -> None:
        """Follows a long-running operation to its end."""
        assert answer.status_code in (200, 202, 204), answer.text
        if answer.status_code == 202:
            url = answer.headers["Azure-AsyncOperation"]
            poll(lambda: self.call("GET", url).json()["status"] != "InProgress", seconds)

    def log(self) -> str:
        return (self.root / "service.log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.client.close()
        self.process.send_signal(number)
        return self.process.wait(20)


def poll(done: Callable[[], Any], seconds: float = 20) -> Any:
    """Asks until the answer is true, and returns it; fails after some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := done():
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing came within {seconds} s")


@pytest.fixture(name="poll", scope="session")
def poll_fixture() -> Callable[..., Any]:
    return poll


def start(root: Path, *options: str) -> Running:
    """Starts a service and waits until it answers."""
    command = [sys.executable, "-m", "batchhvd.service", "--root", str(root), *options]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        poll(lambda: (root / "endpoint").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
    except BaseException:
        process.kill()
        raise
    return Running(root, process)


@pytest.fixture(name="start", scope="session")
def start_fixture() -> Callable[..., Running]:
    return start


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One service for all tests that can share it; each test takes resource groups of its own."""
    running = start(tmp_path_factory.mktemp("the sérvice"))
    yield running
    assert running.stop() == 0


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts services that end with the test."""
    with contextlib.ExitStack() as stack:

        def begin(*options: str, root: Path | None = None) -> Running:
            running = start(root or tmp_path / "röot dir", *options)
            stack.callback(lambda: running.process.poll() is None and running.stop())
            return running

        yield begin


@pytest.fixture
def group(service: Running, request: pytest.FixtureRequest) -> Iterator[str]:
    """The id of an empty resource group that is deleted after the test."""
    id = f"{SUBSCRIPTION}/resourceGroups/g{os.urandom(4).hex()}"
    assert service.call("PUT", id, {"location": "eastus"}).status_code == 201
    yield id
    answer = service.call("DELETE", id)
    if answer.status_code != 404:
        service.finish(answer)


@pytest.fixture
def account(service: Running, group: str) -> tuple[str, str]:
    """Name and key of a storage account in the group."""
    name = f"acc{os.urandom(5).hex()}"
    id = f"{group}/providers/Microsoft.Storage/storageAccounts/{name}"
    body = {"sku": {"name": "Standard_LRS"}, "kind": "StorageV2", "location": "eastus"}
    assert service.call("PUT", id, body).status_code == 200
    return name, service.call("POST", f"{id}/listKeys").json()["keys"][0]["value"]
