"""Azure Files over REST, as an ASGI application on plain directories.

Order of work, the same for every request: read its head, find out what it means and whether it may (``files_gate``),
take its body into memory (4 MiB at most: a range is written whole or not at all), do it (``files_share``,
``files_directory``, ``files_file``, ``files_range``, ``files_move``), answer. It is done in a worker thread, except
where handing it over would be most of the work: a new file, a small range, a look at a file's properties.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import anyio
from attrs import evolve

from batchhvd.errors import ServiceError
from batchhvd.service.files.disk.disk import Disk
from batchhvd.service.files.operations.range import RANGE_BYTES
from batchhvd.service.files.protocol import request as files_request
from batchhvd.service.files.protocol import sas as files_sas
from batchhvd.service.files.protocol.gate import Gate
from batchhvd.service.files.protocol.refusal import refuse, translate
from batchhvd.service.files.protocol.request import Request, TakesLong, Target
from batchhvd.service.files.protocol.response import Answer, Stretch, refusal
from batchhvd.service.files.route import Action

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_VERSION = "2022-11-02"  # told to those who name no version; every newer one is answered as itself
T = TypeVar("T")

_WORKERS = 16  # threads that wait for the disk
_CRUMBS = 256  # pieces of a body that are joined, so that one sent byte by byte stays small
_PIECE = 1 << 20  # bytes read from disk and sent at a time
_log = logging.getLogger(__name__)


class Files:
    """The file service of all storage accounts, by host (``<account>.file.…``) or by the path's first segment.

    Args:
        root: the directory that holds ``<account>/<share>/``.
        keys: returns an account's base64 keys, or None for an account that does not exist.
        now: the clock, seconds since 1970.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        keys: Callable[[str], Sequence[str] | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._disk = Disk(Path(root))
        self._gate = Gate(keys, now)
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="files")

    def sas(self, account: str, share: str, path: str, permission: str, expiry: float) -> str:
        """Returns the query string of a link to a file, or to a whole share where ``path`` is "".

        Args:
            account: the storage account.
            share: the share's name.
            path: the file's path in the share, decoded.
            permission: letters of ``rcwdl``.
            expiry: seconds since 1970 at which the link ends.

        Raises:
            ServiceError: there is no such account.
        """
        target = Target(account, share, tuple(name for name in path.split("/") if name))
        return files_sas.mint(self._gate.key(account), target, permission, expiry)

    def directory(self, account: str, share: str) -> Path | None:
        """Returns the directory that a share is, or None where there is no such share."""
        if not files_request.is_name(account, share):
            return None
        path = self._disk.share(Target(account, share))
        return path if path.is_dir() else None

    def close(self) -> None:
        """Closes what the service keeps beside the shares."""
        self._workers.shutdown()
        self._disk.close()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answers one HTTP request."""
        answer = await self._answer(scope, receive)
        if answer is not None:
            head = scope["method"] == "HEAD"
            await self._send(answer, _common(scope), head, receive, send)

    async def _answer(self, scope: Mapping[str, Any], receive: Receive) -> Answer | None:
        try:
            request = files_request.read(scope)
            given = self._gate.admit(request)
            body = await _body(receive)
            if body is None:
                return None
            return await self._do(given.action, given.complete(request, body))
        except ServiceError as error:
            return refusal(error)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope.get("raw_path", b"").decode("latin-1"))
            return refusal(refuse("InternalError"))

    async def _do(self, action: Action, request: Request) -> Answer:
        if request.hurried:
            with suppress(TakesLong):
                return self._act(action, request)
            request = evolve(request, hurried=False)
        return await self._in_worker(self._act, action, request)

    def _act(self, action: Action, request: Request) -> Answer:
        try:
            return action.run(self._disk, request)
        except OSError as error:
            raise translate(error) or error from error

    async def _send(self, answer: Answer, common: Mapping[str, str], head: bool, receive: Receive, send: Send) -> None:
        stretch = answer.body if isinstance(answer.body, Stretch) else None
        try:
            headers = {**common, **answer.headers}
            if isinstance(answer.body, bytes) and answer.status != 304:
                headers.setdefault("content-length", str(len(answer.body)))
            pairs = [(name.encode(), _encode(value)) for name, value in headers.items()]
            # The last one: where it has arrived, all have.
            pairs.append((b"x-ms-request-id", str(uuid.uuid4()).encode()))
            await send({"type": "http.response.start", "status": answer.status, "headers": pairs})
            if stretch is None:
                await send({"type": "http.response.body", "body": b"" if head else answer.body})
            else:
                await self._stream(stretch, receive, send)
        finally:
            if stretch is not None:
                os.close(stretch.fd)

    async def _stream(self, stretch: Stretch, receive: Receive, send: Send) -> None:
        """Sends a stretch of a file in pieces, until its end or until the client has gone."""
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, receive, group.cancel_scope)
            position, end = stretch.start, stretch.start + stretch.length
            while position < end:
                piece = await self._in_worker(os.pread, stretch.fd, min(_PIECE, end - position), position)
                if not piece:
                    raise EOFError("a file became shorter while it was sent; the connection ends here")
                position += len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": position < end})
            group.cancel_scope.cancel()

    def _in_worker(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Runs what may wait for the disk in a thread, so that no other request waits for it."""
        return asyncio.get_running_loop().run_in_executor(self._workers, function, *arguments)


async def _body(receive: Receive) -> tuple[bytes, ...] | None:
    """Returns the whole body in pieces, or None where the client went away before its end."""
    pieces: list[bytes] = []
    crumbs: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        crumbs.append(message.get("body", b""))
        size, more = size + len(crumbs[-1]), message.get("more_body", False)
        if size > RANGE_BYTES:
            raise refuse("RequestBodyTooLarge")
        if len(crumbs) == _CRUMBS:
            pieces.append(b"".join(crumbs))
            crumbs.clear()
    return (*pieces, *crumbs)


def _common(scope: Mapping[str, Any]) -> dict[str, str]:
    """Returns the headers that begin every answer: the request's own version and id come back."""
    headers = {"x-ms-version": _VERSION}
    for name, value in scope["headers"]:
        if name in (b"x-ms-version", b"x-ms-client-request-id"):
            headers[name.decode()] = value.decode("latin-1")
    return headers


async def _watch(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _encode(value: str) -> bytes:
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8")
