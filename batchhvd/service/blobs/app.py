"""Blob containers over REST, as an ASGI application on plain directories.

Order of work, the same for every request: read its head, find out what it means and whether it may (``route``), receive
a blob's content into a file outside the container, or another body into memory, do it in a worker thread, send the
response. A blob enters its container by a rename when it is whole: a kill or a lost connection leaves the old one.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from attrs import evolve
from starlette.types import Receive, Scope, Send

from batchhvd.errors import ServiceError
from batchhvd.service.blobs.blocks import Blocks
from batchhvd.service.blobs.call import BlobCall, Upload, as_blob
from batchhvd.service.blobs.route import BlobAction, BlobPermit, admit
from batchhvd.service.storage.data_plane import DataPlane, Keys
from batchhvd.service.storage.disk.content import write
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol import cors
from batchhvd.service.storage.protocol.refusal import refusal, translate
from batchhvd.service.storage.protocol.request import Request, read
from batchhvd.service.storage.protocol.response import Response, error_response
from batchhvd.service.storage.transport import read_body, send_response

_PIECE = 1 << 20  # bytes of a blob that are held in memory
_log = logging.getLogger(__name__)


class Blobs(DataPlane):
    """The blob service of all storage accounts, by host (``<account>.blob.…``) or by the path's first segment.

    Args:
        root: the directory that holds ``<account>/<container>/``.
        keys: returns an account's base64 keys, or None for an account that does not exist.
        now: the clock, seconds since 1970.
        admitted: told of each request (its ASGI scope) that a key or a link permits.
        problem: says what keeps the service from answering, "" if nothing does.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        keys: Keys,
        now: Callable[[], float] = time.time,
        admitted: Callable[[Scope], None] = lambda scope: None,
        problem: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__(Disk(Path(root), now), keys, "blob")
        self._admitted, self._problem, self._root = admitted, problem, root
        self._blocks = Blocks(Path(root) / ".files" / "blocks")
        threading.Thread(target=self._blocks.expire, name="old blocks", daemon=True).start()

    def forget(self, account: str) -> None:
        """Deletes what is kept beside the containers of an account that does not exist any more."""
        super().forget(account)
        self._blocks.forget_all(account)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request."""
        if scope["type"] != "http":
            return
        response = await self._answer(scope, receive)
        if response is not None:
            await send_response(response, scope, receive, send, self._read)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | None:
        try:
            request = read(scope, "blob")
            if request.method == "OPTIONS":
                return cors.preflight([], request)
            permit = admit(self._gate, request)
            self._admitted(scope)
            if problem := self._problem():
                raise refusal("RootGone", problem)
            return await self._received(permit, receive)
        except ServiceError as error:
            return error_response(as_blob(error))
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope.get("raw_path", b"").decode("latin-1"))
            return error_response(refusal("InternalError"))

    async def _received(self, permit: BlobPermit, receive: Receive) -> Response | None:
        """Does what a request asks for when its body is here; None if the client went away before its end."""
        action, request = permit.action, permit.request
        if not action.uploads:
            body = await read_body(receive, action.body)
            return None if body is None else await self._do(action, evolve(request, body=body))
        with_file = ExitStack()
        try:
            upload = await self._upload(action, request, receive, with_file)
            return None if upload is None else await self._do(action, request, upload)
        finally:
            await self._in_worker(with_file.close)  # to delete what is left of a large one takes a while

    async def _do(self, action: BlobAction, request: Request, upload: Upload | None = None) -> Response:
        return await self._in_worker(self._act, action, BlobCall(self._disk, self._blocks, request, upload))

    async def _upload(self, action: BlobAction, request: Request, receive: Receive, stack: ExitStack) -> Upload | None:
        """Receives a blob's content into a file outside the container."""
        promised = _length(request, action.body)
        await self._in_worker(self._check_room, promised)
        staged = await self._in_worker(stack.enter_context, self._disk.stage())
        hashed = hashlib.md5(usedforsecurity=False)
        pieces: list[bytes] = []
        held = position = 0

        def keep() -> None:
            for piece in pieces:
                hashed.update(piece)
            self._writing(staged.fd, pieces, position)

        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            pieces.append(message.get("body", b""))
            held, more = held + len(pieces[-1]), message.get("more_body", False)
            if position + held > action.body:
                raise refusal("RequestBodyTooLarge")
            if held >= _PIECE or not more or len(pieces) > 256:
                await self._in_worker(keep)
                position, held = position + held, 0
                pieces.clear()
        return Upload(staged, base64.b64encode(hashed.digest()).decode())

    def _writing(self, fd: int, pieces: list[bytes], position: int) -> None:
        try:
            write(fd, pieces, position)
        except OSError as error:
            raise self._told(error) or error from error

    def _check_room(self, size: int) -> None:
        if size > shutil.disk_usage(self._root).free:
            raise refusal("StorageFull", f"It is that of {self._root}.")

    def _act(self, action: BlobAction, call: BlobCall) -> Response:
        try:
            return action.run(call)
        except OSError as error:
            raise self._told(error) or error from error

    def _told(self, error: OSError) -> ServiceError | None:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return refusal("StorageFull", f"It is that of {self._root}.")
        return translate(error)


def _length(request: Request, most: int) -> int:
    if "content-length" not in request.headers:
        raise refusal("MissingContentLengthHeader")
    size = request.number("content-length", most=1 << 62)
    if size > most:
        raise refusal("RequestBodyTooLarge", f"The most is {most} bytes; use Put Block and Put Block List.")
    return size
