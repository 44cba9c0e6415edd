"""What can go wrong with requests to a file service, on purpose: busy servers, cut connections, long waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from difflib import get_close_matches

from attrs import define, field, frozen
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batchhvd.errors import ServiceError
from batchhvd.service.files import route
from batchhvd.service.http.incoming import CUT
from batchhvd.service.storage.protocol.request import Request, read
from batchhvd.service.storage.protocol.response import error_response
from batchhvd.service.storage.transport import read_body, send_response

KINDS = ("throttle", "server_busy", "cut", "slow")
POINTS = ("request", "answer")

_SAID = {
    "throttle": (429, "TooManyRequests", "Too many requests have been sent; wait a second."),
    "server_busy": (503, "ServerBusy", "The server is busy; send the request again later."),
}


@define(eq=False)
class Fault:
    """One thing that goes wrong; also a context manager, after which all is well again.

    Attributes:
        kind: ``throttle`` (429 with ``Retry-After: 1``; storage clients do not try again by themselves),
            ``server_busy`` (503; they do), ``cut`` (the connection ends), ``slow``.
        times: how many requests meet it; None for all.
        operation: which requests do: those of one operation, such as ``Put Range``; "" for any. The names stand in
            docs/files.md.
        seconds: how long ``slow`` makes a request wait before anything is done.
        point: where ``cut`` ends the connection: ``request``, before anything is done, or ``answer``, when it is done
            and half of the answer's body was sent, or nothing if it has none.
        hits: how many requests have met it.
    """

    kind: str
    times: int | None = field(default=1, kw_only=True)
    operation: str = field(default="", kw_only=True)
    seconds: float = field(default=0.5, kw_only=True)
    point: str = field(default="answer", kw_only=True)
    hits: int = field(default=0, init=False)
    _is_over: bool = field(default=False, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        _choice("kind", self.kind, KINDS)
        _choice("point", self.point, POINTS)
        if self.operation:
            _choice("operation", self.operation, sorted({action.name for _, action in route.actions()}))
        if self.times is not None and self.times < 1:
            raise ValueError(f"times must be at least 1, or None for all requests; not {self.times}")

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends the fault; no further request meets it."""
        self._is_over = True

    def meets(self, operation: str) -> bool:
        """Says whether a request of an operation meets the fault, and counts it."""
        spent = self.times is not None and self.hits >= self.times
        if self._is_over or spent or self.operation not in ("", operation):
            return False
        self.hits += 1
        return True


@frozen
class Faulty:
    """A file service some of whose requests go wrong.

    Attributes:
        app: the file service.
        faults: returns the faults of an account.
    """

    app: ASGIApp
    faults: Callable[[str], list[Fault]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request, or does not."""
        for fault in self._met(scope):
            if fault.kind == "slow":
                await asyncio.sleep(fault.seconds)
            elif fault.kind == "cut":
                await self._cut(fault.point, scope, receive, send)
                return
            else:
                await _refuse(fault.kind, scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _met(self, scope: Scope) -> Iterator[Fault]:
        try:
            request = read(scope)
            operation = _operation(request)
        except ServiceError:
            return  # it is refused anyway
        yield from (fault for fault in list(self.faults(request.target.account)) if fault.meets(operation))

    async def _cut(self, point: str, scope: Scope, receive: Receive, send: Send) -> None:
        cut: Callable[[], None] = scope["extensions"][CUT]
        if point == "answer":
            await self.app(scope, receive, _Half(send))
        cut()
        while (await receive())["type"] != "http.disconnect":
            pass


def _operation(request: Request) -> str:
    return route.find(request).name


async def _refuse(kind: str, scope: Scope, receive: Receive, send: Send) -> None:
    if await read_body(receive) is None:
        return
    status, code, text = _SAID[kind]
    response = error_response(
        ServiceError(text, code=code, status=status), {"retry-after": "1"} if status == 429 else None
    )
    await send_response(response, scope, receive, send, _nothing)


async def _nothing(fd: int, length: int, position: int) -> bytes:
    return b""


class _Half:
    """Sends the first half of an answer's body; nothing at all if the answer has none."""

    def __init__(self, send: Send) -> None:
        self._send, self._left = send, 0
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        """Sends what belongs to the first half."""
        if message["type"] == "http.response.start":
            self._start, self._left = message, int(dict(message["headers"]).get(b"content-length", b"0")) // 2
            return
        piece = message.get("body", b"")[: self._left]
        if not piece:
            return
        self._left -= len(piece)
        if self._start is not None:
            await self._send(self._start)
            self._start = None
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})


def _choice(what: str, given: object, known: tuple[str, ...] | list[str]) -> None:
    if given not in known:
        near = get_close_matches(str(given), known, 1, 0.5)
        hint = f"; did you mean {near[0]!r}?" if near else f"; choose one of {', '.join(known)}"
        raise ValueError(f"{given!r} is not a known {what}{hint}")
