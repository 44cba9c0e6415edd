"""The ASGI application.

Each request is handled in this order: is it meant for this service, who sends it, which operation does it ask for, is
it valid, act, answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from batchhvd.errors import AccessDeniedError, BadRequestError, ServiceError
from batchhvd.service import entrance, public
from batchhvd.service.arm import storage_accounts
from batchhvd.service.description.published import Description
from batchhvd.service.dispatch import Dispatcher
from batchhvd.service.http import conditions, host, outgoing
from batchhvd.service.http.exchange import Act, Answer, FileService, Here, Logins
from batchhvd.service.http.incoming import Incoming
from batchhvd.service.http.tokens import Tokens
from batchhvd.service.page_site import PageSite
from batchhvd.service.status import page, summary
from batchhvd.service.store import trouble
from batchhvd.service.store.records import Store
from batchhvd.wire.facts.containers import Containers

log = logging.getLogger("batchhvd.service")

# If the scheduler finishes within this time, the client need not poll.
_PATIENCE, _STEP = 0.4, 0.02


def build(
    store: Store,
    root: Path,
    secret: Callable[[], str],
    wake: Callable[[], None],
    files: FileService,
    now: Callable[[], float] = time.time,
    touch: Callable[[], None] = lambda: None,
    directories: Sequence[str] = (),
    problem: Callable[[], str] = lambda: "",
    preparation: Callable[[], str] = lambda: "",
    blobs: tuple[FileService, str] | None = None,
    containers: Containers = Containers(),  # noqa: B008  # frozen
    ways: entrance.Ways | None = None,
    logins: Logins = lambda cluster, nodes: {},
) -> App:
    """Returns the application.

    Args:
        store: all state.
        root: the service's folder.
        secret: returns the present secret that opens it.
        wake: tells the scheduler that something has changed.
        files: the file service.
        now: the clock, seconds since 1970.
        touch: called for each request, so that an idle service can be ended.
        directories: the directories of the machine that jobs may mount.
        problem: says what keeps the service from answering, "" if nothing does.
        preparation: says where a job's preparation would run.
        blobs: the blob service, and the URL below which it serves accounts by path.
        containers: what the service does with container images.
        ways: how nodes are entered; None if they cannot be.
        logins: returns the ports through which nodes can be entered.
    """
    here = Here(store, root, files, now, directories, problem, preparation, blobs, containers, logins)
    dispatcher = Dispatcher(here, Description.published())
    return App(here, secret, dispatcher, PageSite(here, secret), wake, touch, ways)


class App:
    """The ASGI application of the control plane; passes requests for files and blobs on."""

    def __init__(
        self,
        here: Here,
        secret: Callable[[], str],
        dispatcher: Dispatcher,
        page: PageSite,
        wake: Callable[[], None],
        touch: Callable[[], None],
        ways: entrance.Ways | None,
    ) -> None:
        self._here, self._secret, self._dispatcher, self._page = here, secret, dispatcher, page
        self._wake, self._touch, self._ways = wake, touch, ways

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        self._touch()
        request = Incoming(scope, receive)
        if self._here.blobs and request.hosts == 1 and _is_for_blobs(request):
            await self._here.blobs[0](scope, receive, outgoing.named(send, {}))
            return
        paged = request.hosts == 1 and self._page.serves(request.host)
        if _is_for_files(request):
            await self._here.files(scope, receive, outgoing.named(send, {}))
            return
        send = outgoing.named(send, page.HEADERS if paged else outgoing.CONFINED)
        request_id = str(uuid.uuid4())
        answer = await self._answer(request, request_id, self._page.answer if paged else self._act)
        await outgoing.send_answer(answer, request_id, send, head=request.method == "HEAD")

    async def _answer(self, request: Incoming, request_id: str, act: Callable[[Incoming], Awaitable[Answer]]) -> Answer:
        """Returns the answer to a request, whatever happens, and logs requests that write or fail."""
        started = time.perf_counter()
        try:
            answer = await act(request)
        except ServiceError as error:
            answer = outgoing.refused(error)
        except ClientDisconnect:
            return Answer(400)
        except Exception as error:
            told = trouble.told(error, self._here.root)
            cause = None if told else error
            log.error(
                "%s %s failed; request %s %s", request.method, request.path, request_id, told or "", exc_info=cause
            )
            answer = outgoing.refused(told) if told else outgoing.failed(request_id)
        if request.writes or answer.status >= 400:
            took = 1000 * (time.perf_counter() - started)
            facts = request.method, request.path, answer.status, took, request_id
            log.info("%s %s %d %.1f ms %s", *facts, extra={"refused": answer.status >= 400})
        return answer

    async def _act(self, request: Incoming) -> Answer:
        """Handles one request, in the order given at the head of this module."""
        _check_host(request)
        bearer = Tokens(self._secret(), self._here.now)
        answer = await public.answer(request, bearer)
        if answer is not None:
            return answer
        bearer.check(request.headers.get("authorization", ""))
        request.trust()
        self._here.check()
        if request.method == "GET" and request.path == "/status.json":
            return await asyncio.to_thread(summary.answer, self._here)
        if request.method == "POST" and request.path == "/status.link":
            return self._page.link(request.host)
        if request.method == "POST" and request.path in entrance.PATHS and self._ways:
            body = await request.body()
            return await asyncio.to_thread(entrance.answer, self._here, self._ways, request.path, body)
        body, dry_run = await request.body(), request.dry_run()
        act = self._dispatcher.prepare(request, body, dry_run=dry_run)
        conditions.check(request.method, request.headers)
        if dry_run:
            return act()
        if act.in_thread:
            answer = await asyncio.to_thread(act)
        else:
            answer = await self._settle(self._do(act, writes=request.writes))
        return conditions.judge(answer, request.headers)

    def _do(self, act: Act, *, writes: bool) -> Answer:
        """Acts; what writes does so in one transaction, so that the scheduler cannot remove a parent meanwhile."""
        if not writes:
            answer = act()
        else:
            with self._here.store.transaction():
                answer = act()
        if writes or answer.later:
            self._wake()
        return answer

    async def _settle(self, answer: Answer) -> Answer:
        """Waits a moment for the scheduler to do what was asked."""
        for _ in range(round(_PATIENCE / _STEP) if answer.later else 0):
            done = answer.later() if answer.later else None
            if done:
                return done
            await asyncio.sleep(_STEP)
        return answer


def _check_host(request: Incoming) -> None:
    if request.hosts > 1:
        raise BadRequestError("The request has more than one Host header.", code="InvalidHeaderValue", target="Host")
    if not host.is_ours(request.host):
        text = f"This service does not answer for the host '{request.host}'."
        raise AccessDeniedError(text, code="HostNotAllowed")


def _is_for_blobs(request: Incoming) -> bool:
    return host.is_ours(request.host) and host.is_for_blobs(request.host)


def _is_for_files(request: Incoming) -> bool:
    """Says whether a request is for the file service: by the account's host, or by an account in the path."""
    if request.hosts > 1 or not host.is_ours(request.host):
        return False
    first = request.path.lstrip("/").partition("/")[0]
    return host.is_for_files(request.host) or (storage_accounts.valid(first) and not public.is_login(request.path))
