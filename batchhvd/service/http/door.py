"""Connections within limits: how many, how large a head, how long a silence; who exceeds one is told which.

uvicorn's protocol on httptools has none of these limits. Each connection keeps its state in a few numbers; one look a
second at all of them finds who is late, so that no request sets a timer.
"""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus

from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from batchhvd.service.http import limits
from batchhvd.service.http.incoming import CUT, TRUST
from batchhvd.service.http.outgoing import CONFINED
from batchhvd.wire.facts.spelling import METADATA, SPELLING

log = logging.getLogger("batchhvd.service")

_METADATA = METADATA.encode()
_LOOK = 1.0  # seconds between two looks at all connections
_LARGE_HEAD = (431, "RequestHeadersTooLarge", f"The head of a request may have {limits.HEAD_BYTES} bytes.")
_MANY_FIELDS = (431, "RequestHeadersTooLarge", f"A request may have {limits.HEAD_FIELDS} header fields.")
_SLOW_HEAD = (408, "RequestTimeout", f"The head of a request must be complete within {limits.HEAD_SECONDS:g} seconds.")
_SLOW_BODY = (408, "RequestTimeout", f"No more of the body came for {limits.BODY_SECONDS:g} seconds.")
_SILENT = (408, "RequestTimeout", f"No request came for {limits.IDLE_SECONDS:g} seconds.")
_GIVES_WAY = (408, "RequestTimeout", "Too many connections without a credential are open; this one was the oldest.")
_FULL = (429, "TooManyConnections", "Too many connections are open.")


class Hall:
    """The open connections of a process, whichever of its servers they belong to."""

    def __init__(self) -> None:
        self._most = limits.connections()
        self._open: dict[Door, None] = {}  # in the order in which they came
        self._strangers: dict[Door, None] = {}
        self._lingering: dict[Door, None] = {}
        self._next_look: asyncio.TimerHandle | None = None

    def enter(self, door: Door) -> bool:
        """Lets a new connection in, if there is room or somebody unknown and idle can give way."""
        room = len(self._open) < self._most and len(self._strangers) < self._most * limits.STRANGERS
        if not room and not self._make_room():
            return False
        self._open[door] = self._strangers[door] = None
        if self._next_look is None:
            self._next_look = door.loop.call_later(_LOOK, self._look)
        return True

    def trust(self, door: Door) -> None:
        """Notes that a connection has shown a credential."""
        self._strangers.pop(door, None)

    def leave(self, door: Door) -> None:
        """Forgets a connection."""
        for known in (self._open, self._strangers, self._lingering):
            known.pop(door, None)

    def linger(self, door: Door) -> None:
        """Keeps a refused connection for a moment, and closes the oldest such one if there are too many."""
        self.leave(door)
        if len(self._lingering) >= limits.LINGERING:
            next(iter(self._lingering)).end()
        self._lingering[door] = None
        if self._next_look is None:
            self._next_look = door.loop.call_later(_LOOK, self._look)

    def _make_room(self) -> bool:
        for door in self._strangers:
            if door.waits:
                door.refuse(*_GIVES_WAY)
                return True
        return False

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for door in (*self._open, *self._lingering):
            door.look(loop.time(), stranger=door in self._strangers)
        busy = self._open or self._lingering
        self._next_look = loop.call_later(_LOOK, self._look) if busy else None


class Door(HttpToolsProtocol):  # type: ignore[misc]  # mypy is told to skip uvicorn
    """One connection."""

    def __init__(self, hall: Hall, config: Config, server_state: ServerState) -> None:
        super().__init__(config, server_state, {})
        self._hall = hall
        self._since = self.loop.time()  # when something was last heard, or answered
        self._in_head = self._in_message = self._moved = self._refused = False
        self._wrong = (400, "BadRequest", "The request is not HTTP.")
        self._head = self._fields = self._waiting = self._rest = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being worked on, so that closing it loses no answer."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits(self) -> bool:
        """Whether what comes next is up to the client, which may never send it."""
        return self.is_idle or self._in_message

    # -- what uvicorn and asyncio call ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Lets the connection in, or says why not."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._since = self.loop.time()
        if not self._hall.enter(self):
            self.refuse(*_FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        """Makes room for another connection."""
        self._hall.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, and counts what comes without moving the request on."""
        if self._refused:
            return
        self._since, self._moved = self.loop.time(), False
        super().data_received(data)
        self._waiting = 0 if self._moved else self._waiting + len(data)
        if self._waiting > limits.HEAD_BYTES and (self._in_message or self._in_head):
            self.refuse(*_LARGE_HEAD)
        elif self._in_message and self.is_idle:
            self._drop(len(data))

    def on_message_begin(self) -> None:
        """Begins a request's head."""
        super().on_message_begin()
        self.scope["extensions"] = {TRUST: self._trust, CUT: self.transport.abort}
        self._in_head = self._in_message = True
        self._head = self._fields = self._rest = 0
        self._began = self._since

    def on_url(self, url: bytes) -> None:
        """Counts the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts a field; those of trailers as well."""
        self._fields += 1
        if self._fields > limits.HEAD_FIELDS:
            self._refuse_to_parse(_MANY_FIELDS)
        self._count(len(name) + len(value) + 4)
        if self._in_head:  # a trailer is no header: it came too late to say what the request is
            super().on_header(name, value)
            small = name.lower()
            if small != name and small.startswith(_METADATA):
                self.scope["extensions"].setdefault(SPELLING, {})[small] = name

    def on_headers_complete(self) -> None:
        """Ends a request's head."""
        self._in_head, self._moved = False, True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Takes a piece of a body."""
        self._moved = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends a request."""
        self._in_message, self._moved = False, True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Counts the silence from the answer on."""
        self._since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers what cannot be read."""
        self.refuse(*self._wrong)

    # -- limits --------------------------------------------------------------------------------------------------------

    def look(self, now: float, *, stranger: bool) -> None:
        """Ends the connection if its client is too slow."""
        silent = now - self._since
        if self._refused:
            if silent > limits.LINGER_SECONDS:
                self.end()
        elif self._in_head:
            if now - self._began > limits.HEAD_SECONDS:
                self.refuse(*_SLOW_HEAD)
        elif self._in_message:
            if silent > limits.BODY_SECONDS and not self.flow.read_paused:
                self.refuse(*_SLOW_BODY)
        elif stranger and self.is_idle and silent > limits.IDLE_SECONDS:
            self.end() if self.cycle else self.refuse(*_SILENT)

    def refuse(self, status: int, code: str, text: str) -> None:
        """Says why, and hears nothing more."""
        if self._refused or self.transport.is_closing():
            return
        self._refused, self._since = True, self.loop.time()
        log.info("a connection was refused: %d %s", status, text, extra={"refused": True})
        if not self.is_idle:
            if self.cycle.response_started:
                self.end()
                return
            self.cycle.disconnected = True  # whatever answers it now answers nobody
            self.cycle.message_event.set()
        self.transport.write(_answer(status, code, text))
        self.flow.resume_reading()
        self._hall.linger(self)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def end(self) -> None:
        """Closes the connection."""
        self._hall.leave(self)
        self.transport.close()

    def _trust(self) -> None:
        self._hall.trust(self)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > limits.HEAD_BYTES:
            self._refuse_to_parse(_LARGE_HEAD)

    def _refuse_to_parse(self, why: tuple[int, str, str]) -> None:
        """Stops the parser; what it makes of the exception leads to ``send_400_response``."""
        self._wrong = why
        raise ValueError(why[2])

    def _drop(self, size: int) -> None:
        """Hears the rest of a body that was answered already, up to a limit."""
        self._rest += size
        if self._rest > limits.REST_BYTES:
            self.end()


class _Flow(FlowControl):  # type: ignore[misc]  # mypy is told to skip uvicorn
    """Stops reading when a second piece comes before the application has taken the first.

    uvicorn stops after each piece of a large body, although the next turn of the loop takes it: two calls to the
    system for each, a tenth of what an upload costs. So one piece more may lie in memory, 256 KiB.
    """

    _full = False

    def pause_reading(self) -> None:
        """Notes that the application has something to take, or stops reading."""
        if self._full:
            super().pause_reading()
        self._full = True

    def resume_reading(self) -> None:
        """Reads on."""
        self._full = False
        super().resume_reading()


def _answer(status: int, code: str, text: str) -> bytes:
    body = json.dumps({"error": {"code": code, "message": text}})
    fields = {"Content-Type": "application/json; charset=utf-8", "Content-Length": str(len(body)), **CONFINED}
    fields |= {"Retry-After": "1"} if status == 429 else {}
    head = "".join(f"{name.lower()}: {value}\r\n" for name, value in {**fields, "Connection": "close"}.items())
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{head}\r\n{body}".encode()
