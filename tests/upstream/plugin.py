"""Runs Microsoft's tests against the file or blob service of this checkout, and counts what it was asked and answered.

The service is reached by Azure's own names: ``<account>.file.core.windows.net`` or ``.blob.``, over TLS, resolves
to it in this process, and no other name resolves to anything. Each test gets a service of its own on the same ports.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from batchhvd.service import server, tls
from batchhvd.service.blobs.app import Blobs
from batchhvd.service.files.app import Files
from tests.upstream import standin

_BLOBS = os.environ.get("UPSTREAM_SUITE") == "blobs"
_HOST = re.compile(rf"[a-z0-9]+\.{'blob' if _BLOBS else 'file'}\.core\.windows\.net")
_KEYS = dict(standin.ACCOUNTS.values())
_FOLDER = Path(tempfile.mkdtemp(prefix="upstream"))
_IDENTITY = tls.identity(_FOLDER)
# Before anything imports aiohttp, which reads it then.
os.environ.update(REQUESTS_CA_BUNDLE=str(_IDENTITY.authority), SSL_CERT_FILE=str(_IDENTITY.authority))
standin.install()


class Watched:
    """The service of the test that runs now, and the statuses that it has answered."""

    def __init__(self) -> None:
        self.files: Files | Blobs | None = None
        self.statuses: list[int] = []
        self.refused: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def heard(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.statuses.append(message["status"])
                if message["status"] == 501:
                    self.refused.append(f"{scope['method']} ?{scope['query_string'].decode()[:60]}")
            await send(message)

        assert self.files is not None
        await self.files(scope, receive, heard)


WATCHED = Watched()
test_proxy = standin.test_proxy  # the tests of blobs take it from nowhere


@pytest.fixture(scope="session", autouse=True)
def service() -> Iterator[None]:
    """Serves, plain and over TLS, and sends the hosts of accounts there."""
    plain, secure = server.listen(0), server.listen(0)
    files = {"ssl_certfile": str(_IDENTITY.certificate), "ssl_keyfile": str(_IDENTITY.key)}
    servers = [(server.server(WATCHED), plain), (server.server(WATCHED, None, **files), secure)]
    threads = [threading.Thread(target=one.run, kwargs={"sockets": [listener]}) for one, listener in servers]
    for thread in threads:
        thread.start()
    while not all(one.started for one, _ in servers):
        time.sleep(0.01)
    _resolve({80: plain.getsockname()[1], 443: secure.getsockname()[1]})
    yield
    for one, _ in servers:
        one.should_exit = True
    for thread in threads:
        thread.join()
    shutil.rmtree(_FOLDER, ignore_errors=True)


def _resolve(ports: dict[int, int]) -> None:
    system = socket.getaddrinfo

    def resolve(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in ("localhost", "127.0.0.1", "::1", None):
            return system(host, port, *arguments, **named)
        if not _HOST.fullmatch(name):
            raise socket.gaierror(f"{name} is not a host of this service")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", ports[int(port or 443)]))]

    socket.getaddrinfo = resolve


@pytest.fixture(autouse=True)
def fresh(
    service: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Gives the test a service with empty accounts."""
    standin.Clock.ahead = 0.0
    WATCHED.statuses, WATCHED.refused = [], []
    monkeypatch.setattr(time, "sleep", _sleeping(time.sleep))
    monkeypatch.setattr(asyncio, "sleep", _sleeping_async(asyncio.sleep))
    WATCHED.files = _service(tmp_path / "root", standin.skus(request.node.name))
    yield
    WATCHED.files.close()


def _service(root: Path, skus: dict[str, str]) -> Files | Blobs:
    def keys(name: str) -> list[str] | None:
        return [_KEYS[name]] if name in _KEYS else None

    def now() -> float:
        return time.time() + standin.Clock.ahead

    return (
        Blobs(root, keys, now) if _BLOBS else Files(root, keys, now, kept_days=7, sku=lambda name: skus.get(name, ""))
    )


def _sleeping(sleep: Any) -> Any:
    """Returns a sleep that, if it is a long one, only moves the service's clock; a client's retry, too."""
    return lambda seconds: standin.Clock.sleep(seconds) if seconds > 0.5 else sleep(seconds)


def _sleeping_async(sleep: Any) -> Any:
    async def waiting(seconds: float, *rest: Any) -> Any:
        if seconds > 0.5:
            standin.Clock.sleep(seconds)
        return await sleep(0 if seconds > 0.5 else seconds, *rest)

    return waiting


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Notes what became of a test."""
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        note = {
            "test": report.nodeid,
            "outcome": report.outcome,
            "asked": len(WATCHED.statuses),
            "refused": WATCHED.refused,
            "why": _reason(report),
        }
        with open(os.environ["UPSTREAM_NOTES"], "a", encoding="utf-8") as notes:
            notes.write(json.dumps(note) + "\n")


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    place = f"{Path(crash.path).name}:{crash.lineno}: " if crash else ""
    return " ".join((place + crash.message if crash else str(report.longrepr or "")).split())[:300]
