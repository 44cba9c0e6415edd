"""Answers that are held back until there is news."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from batchhvd.service.http import holding
from batchhvd.service.http.holding import Holding
from batchhvd.service.http.incoming import trust


class Service:
    """An ASGI application with one file and one document, both of which may change."""

    def __init__(self) -> None:
        self.file, self.document = b"", b'{"state": "queued", "downloadUrl": "http://x/y?sig=%d"}'
        self.asked, self.over = 0, False
        self.trusts = True
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        if self.trusts:
            trust(scope)
        self.bodies.append((await receive())["body"])
        if scope["path"] == "/file":
            await self._send(send, 206 if self.file else 416, b"application/octet-stream", self.file)
        else:
            await self._send(send, 200, b"application/json", self.document.replace(b"%d", b"%d" % self.asked))

    async def _send(self, send: Any, status: int, kind: bytes, body: bytes) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
        for byte in (body[:1], body[1:]):
            await send({"type": "http.response.body", "body": byte, "more_body": byte is body[:1] and len(body) > 1})


async def ask(app: Any, path: str, leave: float = 1000.0, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Sends a request and returns status, headers and body; the client goes away after some seconds."""
    pairs = [(f"x-batchhvd-{name}".encode(), value.encode()) for name, value in headers.items()]
    requests = [{"type": "http.request", "body": b"the body", "more_body": False}]
    seen: list[Any] = []

    async def receive() -> Any:
        if requests:
            return requests.pop()
        await asyncio.sleep(leave)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        seen.append(message)

    await app({"type": "http", "path": path, "headers": pairs}, receive, send)
    if not seen:
        return 0, {}, b""
    found = {name.decode(): value.decode() for name, value in seen[0]["headers"]}
    return seen[0]["status"], found, b"".join(message["body"] for message in seen[1:])


async def later(seconds: float, change: Any) -> None:
    await asyncio.sleep(seconds)
    change()


def hold(service: Service) -> Holding:
    return Holding(service, ended=lambda id: service.over)


def test_without_the_header_nothing_changes() -> None:
    service = Service()
    status, headers, _ = asyncio.run(ask(hold(service), "/file"))
    assert (status, service.asked, [name for name in headers if "batchhvd" in name]) == (416, 1, [])


def test_a_range_behind_the_end_waits_for_the_next_byte() -> None:
    service = Service()

    async def run() -> tuple[int, dict[str, str], bytes]:
        answer, _ = await asyncio.gather(
            ask(hold(service), "/file", wait="5"), later(0.15, lambda: setattr(service, "file", b"new"))
        )
        return answer

    started = time.monotonic()
    assert asyncio.run(run())[::2] == (206, b"new")
    assert 0.1 < time.monotonic() - started < 2
    assert set(service.bodies) == {b"the body"}


@pytest.mark.parametrize(("wait", "least"), [("0", 0.0), ("0.2", 0.2)])
def test_no_news_is_told_when_the_time_is_over(wait: str, least: float) -> None:
    started = time.monotonic()
    status, headers, _ = asyncio.run(ask(hold(Service()), "/file", wait=wait))
    assert (status, headers["x-batchhvd-held"]) == (416, "1")
    assert least <= time.monotonic() - started < least + 1


def test_the_end_of_the_job_is_news() -> None:
    service = Service()

    async def run() -> int:
        answer, _ = await asyncio.gather(
            ask(hold(service), "/file", wait="30", job="/j"), later(0.1, lambda: setattr(service, "over", True))
        )
        return answer[0]

    assert asyncio.run(run()) == 416


def test_a_document_waits_for_another_one_whatever_its_links_are() -> None:
    service = Service()
    app = hold(service)
    _, first, _ = asyncio.run(ask(app, "/document", wait="0"))
    started = time.monotonic()
    _, same, _ = asyncio.run(ask(app, "/document", wait="0.2", unless=first["x-batchhvd-tag"]))
    assert same["x-batchhvd-tag"] == first["x-batchhvd-tag"] and time.monotonic() - started >= 0.2
    service.document = b'{"state": "running"}'
    _, other, body = asyncio.run(ask(app, "/document", wait="30", unless=first["x-batchhvd-tag"]))
    assert other["x-batchhvd-tag"] != first["x-batchhvd-tag"] and body == service.document


def test_a_client_that_leaves_ends_the_holding() -> None:
    service = Service()
    started = time.monotonic()
    assert asyncio.run(ask(hold(service), "/file", leave=0.1, wait="30"))[0] == 0
    assert time.monotonic() - started < 5


def test_a_service_that_ends_holds_nothing() -> None:
    app = Holding(Service(), ended=lambda id: False, closing=lambda: True)
    started = time.monotonic()
    assert asyncio.run(ask(app, "/file", wait="30"))[0] == 416
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("wait", ["", "-1", "soon", "1e9", "nan", "99999999"])
def test_a_header_that_is_no_number_is_ignored(wait: str) -> None:
    service = Service()
    assert "x-batchhvd-held" not in asyncio.run(ask(hold(service), "/file", wait=wait))[1]
    assert service.asked == 1


def test_who_has_shown_no_credential_is_never_held() -> None:
    service = Service()
    service.trusts = False
    started = time.monotonic()
    tag = asyncio.run(ask(hold(service), "/document", wait="0"))[1]["x-batchhvd-tag"]
    assert asyncio.run(ask(hold(service), "/document", wait="30", unless=tag))[0] == 200
    assert asyncio.run(ask(hold(service), "/file", wait="30"))[0] == 416
    assert time.monotonic() - started < 10 and service.asked == 3


def test_nobody_is_held_for_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "HELD_SECONDS", 0.2)
    service = Service()
    tag = asyncio.run(ask(hold(service), "/document", wait="0"))[1]["x-batchhvd-tag"]
    started = time.monotonic()
    assert asyncio.run(ask(hold(service), "/document", wait="30", unless=tag))[0] == 200
    assert time.monotonic() - started < 10
