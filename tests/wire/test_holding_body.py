"""A request that may be held is asked again and again, so its body is kept; nobody can fill the memory that way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from batchhvd.service.http.holding import Holding
from batchhvd.service.http.limits import HELD_BODY_BYTES as LARGEST

PIECE = b"x" * 16384


class Reading:
    """An ASGI application that answers whom it does not know at once, and reads what all others send."""

    def __init__(self, knows: bool) -> None:
        self.knows, self.body = knows, b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        more = self.knows
        while more:
            message = await receive()
            self.body += message["body"]
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200 if self.knows else 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def pieces(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"type": "http.request", "body": PIECE, "more_body": number < count - 1}


def ask(app: Reading, sent: Iterator[dict[str, Any]]) -> int:
    """Sends a request that asks to be held and returns the answer's status."""
    statuses: list[int] = []

    async def receive() -> Any:
        return next(sent)

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 0))

    scope = {"type": "http", "path": "/", "headers": [(b"x-batchhvd-wait", b"5")]}
    asyncio.run(Holding(app, ended=lambda id: False)(scope, receive, send))
    return statuses[0]


def test_of_a_stranger_s_endless_body_only_the_beginning_is_read() -> None:
    sent = pieces(1000)
    assert ask(Reading(knows=False), sent) == 401
    assert len(list(sent)) > 990  # seen to be none when the whole body was read first


def test_a_large_body_of_somebody_known_is_whole() -> None:
    app, count = Reading(knows=True), LARGEST // len(PIECE) + 3
    assert ask(app, pieces(count)) == 200
    assert app.body == PIECE * count
