"""Bodies in and responses out, over ASGI: a body whole in memory, a response from memory or from a file in pieces."""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable, Mapping

import anyio
from starlette.types import Receive, Scope, Send

from batchhvd.service.storage.protocol.byte_range import RANGE_BYTES
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.response import Response, Stretch

_VERSION = "2022-11-02"  # for clients that name no version; others get their own back
# Files are other people's words: if a browser shows one, no script in it runs, and its origin is nobody's. The control
# plane's answers carry the same; this service may also run without it.
_CONFINED = {"content-security-policy": "sandbox", "x-content-type-options": "nosniff"}
_CRUMBS = 256  # pieces of a body that are joined, so that one sent byte by byte stays small
_PIECE = 1 << 20  # bytes read from disk and sent at a time

Read = Callable[[int, int, int], Awaitable[bytes]]
"""Reads from an open file (descriptor, number of bytes, position) without keeping other requests waiting."""


async def read_body(receive: Receive, most: int = RANGE_BYTES) -> tuple[bytes, ...] | None:
    """Returns the whole body in pieces, or None if the client went away before its end."""
    pieces: list[bytes] = []
    crumbs: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        crumbs.append(message.get("body", b""))
        size, more = size + len(crumbs[-1]), message.get("more_body", False)
        if size > most:
            raise refusal("RequestBodyTooLarge")
        if len(crumbs) == _CRUMBS:
            pieces.append(b"".join(crumbs))
            crumbs.clear()
    return (*pieces, *crumbs)


async def send_response(response: Response, scope: Scope, receive: Receive, send: Send, read: Read) -> None:
    """Sends a response and closes the file that it is read from, if there is one."""
    stretch = response.body if isinstance(response.body, Stretch) else None
    try:
        await send({"type": "http.response.start", "status": response.status, "headers": _headers(scope, response)})
        if stretch is not None:
            await _stream(stretch, receive, send, read)
        else:
            body = b"" if scope["method"] == "HEAD" else response.body
            await send({"type": "http.response.body", "body": body})
    finally:
        if stretch is not None:
            os.close(stretch.fd)


def _headers(scope: Scope, response: Response) -> list[tuple[bytes, bytes]]:
    headers = {**_common(scope), **response.headers}
    if isinstance(response.body, bytes) and response.status != 304:
        headers.setdefault("content-length", str(len(response.body)))
    pairs = [(_name(name), _encode(value)) for name, value in headers.items()]
    # The last one: when it has arrived, all have.
    return [*pairs, (b"x-ms-request-id", str(uuid.uuid4()).encode())]


class _Spelled(bytes):
    """A header's name that goes out as it is spelled; the HTTP server writes what ``lower`` returns."""

    def lower(self) -> _Spelled:
        """Returns the same name."""
        return self


def _name(name: str) -> bytes:
    return name.encode() if name.islower() else _Spelled(name.encode())


def _common(scope: Mapping[str, list[tuple[bytes, bytes]]]) -> dict[str, str]:
    """Returns the headers that begin every response: the request's own version and id come back."""
    headers = {"x-ms-version": _VERSION, **_CONFINED}
    for name, value in scope["headers"]:
        if name in (b"x-ms-version", b"x-ms-client-request-id"):
            headers[name.decode()] = value.decode("latin-1")
    return headers


def _encode(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8")


async def _stream(stretch: Stretch, receive: Receive, send: Send, read: Read) -> None:
    """Sends a stretch of a file in pieces, until its end or until the client goes away."""
    async with anyio.create_task_group() as group:
        group.start_soon(_watch, receive, group.cancel_scope)
        position, end = stretch.start, stretch.start + stretch.length
        while position < end:
            piece = await read(stretch.fd, min(_PIECE, end - position), position)
            if not piece:
                raise EOFError("a file became shorter while it was sent; the connection ends here")
            position += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": position < end})
        group.cancel_scope.cancel()


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
