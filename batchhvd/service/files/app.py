"""Azure Files over REST, as an ASGI application on plain directories.

Order of work, the same for every request: read its head, find out what it means and whether it may (``route``,
``protocol.gate``), take its body into memory (4 MiB at most: a range is written whole or not at all), do it
(``operations``), send the response (``transport``). It is done in a worker thread, unless handing it over would be most
of the work: a new file, a small range, a look at a file's properties.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from attrs import evolve
from starlette.types import Receive, Scope, Send

from batchhvd.errors import ServiceError
from batchhvd.service.files.operations.access import policies
from batchhvd.service.files.operations.service import cors_rules
from batchhvd.service.files.route import Action, admit
from batchhvd.service.storage.disk import names
from batchhvd.service.storage.disk.disk import Disk
from batchhvd.service.storage.protocol import cors, sas
from batchhvd.service.storage.protocol.gate import Gate
from batchhvd.service.storage.protocol.refusal import refusal, translate
from batchhvd.service.storage.protocol.request import Request, TakesLong, Target, is_name, read
from batchhvd.service.storage.protocol.response import Response, error_response
from batchhvd.service.storage.transport import read_body, send_response

T = TypeVar("T")

_WORKERS = 16  # threads that wait for the disk
_log = logging.getLogger(__name__)


class Files:
    """The file service of all storage accounts, by host (``<account>.file.…``) or by the path's first segment.

    Args:
        root: the directory that holds ``<account>/<share>/``.
        keys: returns an account's base64 keys, or None for an account that does not exist.
        now: the clock, seconds since 1970.
        kept_days: for how many days deleted shares can be restored; 0 for not at all.
        admitted: told of each request (its ASGI scope) that a key or a link permits.
        problem: says what keeps the service from answering, "" if nothing does.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        keys: Callable[[str], Sequence[str] | None],
        now: Callable[[], float] = time.time,
        kept_days: int = 0,
        admitted: Callable[[Scope], None] = lambda scope: None,
        problem: Callable[[], str] = lambda: "",
    ) -> None:
        self._admitted, self._problem, self._root = admitted, problem, root
        self._disk = Disk(Path(root), now, kept_days)
        self._gate = Gate(keys, now, lambda target: policies(self._disk, target))
        for account in self._disk.kept_accounts():
            if not keys(account):  # it was deleted, and the service killed before this was
                self._disk.forget_account(account)
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="files")

    def sas(self, account: str, share: str, path: str, permission: str, expiry: float) -> str:
        """Returns the query string of a link to a file, or to a whole share if ``path`` is "".

        Args:
            account: the storage account.
            share: the share's name.
            path: the file's path in the share, decoded.
            permission: letters of ``rcwdl``.
            expiry: seconds since 1970 at which the link ends.

        Raises:
            ServiceError: the account does not exist.
        """
        return self.links(account, share, permission, expiry)(path)

    def links(self, account: str, share: str, permission: str, expiry: float) -> Callable[[str], str]:
        """Returns what does the same as ``sas`` for one path after another, without looking for the key each time."""
        key = self._gate.key(account)

        def link(path: str) -> str:
            target = Target(account, share, tuple(name for name in path.split("/") if name))
            return sas.mint(key, target, permission, expiry)

        return link

    def names(self, folder: Path, last: str, most: int) -> list[str]:
        """Returns names in a directory that come after a last one ("" for the beginning), some at most, in order.

        Raises:
            OSError: it cannot be read.
        """
        return names.after(names.names_in(folder), os.fsencode(last), b"", most)

    def directory(self, account: str, share: str) -> Path | None:
        """Returns the directory of a share, or None if the share does not exist."""
        if not is_name(account, share):
            return None
        path = self._disk.share(Target(account, share))
        return path if path.is_dir() else None

    def forget(self, account: str) -> None:
        """Deletes the snapshots, deleted shares and settings of an account that does not exist any more."""
        self._disk.forget_account(account)

    def close(self) -> None:
        """Ends the worker threads and closes the sidecar."""
        self._workers.shutdown()
        self._disk.close()

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

    async def _read(self, fd: int, length: int, position: int) -> bytes:
        return await self._in_worker(os.pread, fd, length, position)

    def _in_worker(self, function: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        """Runs what may wait for the disk in a thread, so that no other request waits for it."""
        return asyncio.get_running_loop().run_in_executor(self._workers, function, *arguments)
