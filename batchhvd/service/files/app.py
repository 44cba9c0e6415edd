"""Azure Files over REST, as an ASGI application on plain directories.

Order of work, the same for every request: read its head, find out what it means and whether it may (``route``,
``protocol.gate``), take its body into memory (4 MiB at most: a range is written whole or not at all), do it
(``operations``), send the response (``transport``). It is done in a worker thread, unless handing it over would be most
of the work: a new file, a small range, a look at a file's properties.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attrs import evolve
from starlette.types import Receive, Scope, Send

from batchhvd.errors import ServiceError
from batchhvd.service.files.operations.service import cors_rules
from batchhvd.service.files.route import Action, admit
from batchhvd.service.storage.data_plane import DataPlane, Keys
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol import cors
from batchhvd.service.storage.protocol.refusal import refusal, translate
from batchhvd.service.storage.protocol.request import Request, TakesLong, read
from batchhvd.service.storage.protocol.response import Response, error_response
from batchhvd.service.storage.transport import read_body, send_response

_log = logging.getLogger(__name__)


class Files(DataPlane):
    """The file service of all storage accounts, by host (``<account>.file.…``) or by the path's first segment.

    Args:
        root: the directory that holds ``<account>/<share>/``.
        keys: returns an account's base64 keys, or None for an account that does not exist.
        now: the clock, seconds since 1970.
        kept_days: for how many days deleted shares can be restored, 0 for not at all; or what says so of an account.
        sku: says which SKU an account has, such as ``Premium_LRS``; "" for a standard one.
        admitted: told of each request (its ASGI scope) that a key or a link permits.
        problem: says what keeps the service from answering, "" if nothing does.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        keys: Keys,
        now: Callable[[], float] = time.time,
        kept_days: int | Callable[[str], int] = 0,
        sku: Callable[[str], str] = lambda account: "",
        admitted: Callable[[Scope], None] = lambda scope: None,
        problem: Callable[[], str] = lambda: "",
    ) -> None:
        days = kept_days if callable(kept_days) else lambda _: kept_days
        super().__init__(Disk(Path(root), now, days, sku), keys, "file")
        self._admitted, self._problem, self._root = admitted, problem, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request."""
        response = await self._respond(scope, receive)
        if response is not None:
            await send_response(response, scope, receive, send, self._read)

    async def _respond(self, scope: Scope, receive: Receive) -> Response | None:
        try:
            request = read(scope)
        except ServiceError as error:
            return error_response(error)
        response = await self._answer(scope, request, receive)
        if response is None or "origin" not in request.headers or request.method == "OPTIONS":
            return response
        rules = await self._in_worker(cors_rules, self._disk, request)
        return evolve(response, headers={**response.headers, **cors.answer(rules, request)})

    async def _answer(self, scope: Scope, request: Request, receive: Receive) -> Response | None:
        try:
            if request.method == "OPTIONS":
                return cors.preflight(await self._in_worker(cors_rules, self._disk, request), request)
            permit = admit(self._gate, request)
            self._admitted(scope)
            if problem := self._problem():
                raise refusal("RootGone", problem)
            body = await read_body(receive)
            if body is None:
                return None
            return await self._do(permit.action, permit.complete(request, body))
        except ServiceError as error:
            return error_response(error)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope.get("raw_path", b"").decode("latin-1"))
            return error_response(refusal("InternalError"))

    async def _do(self, action: Action, request: Request) -> Response:
        if request.hurried:
            with suppress(TakesLong):
                return self._act(action, request)
            request = evolve(request, hurried=False)
        return await self._in_worker(self._act, action, request)

    def _act(self, action: Action, request: Request) -> Response:
        try:
            request.check_body()
            return action.run(self._disk, request)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            told = refusal("ShareSizeLimitReached", f"The disk of {self._root} is full.") if full else translate(error)
            raise told or error from error
