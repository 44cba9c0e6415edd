"""Holds back an answer without news until there is news, for clients that ask for it: one request instead of many.

An extension of this service, switched on by a request's header; nothing else changes its behaviour.

    x-batchhvd-wait: SECONDS   hold the answer for so long at most; 0 asks for the answer at once, with its tag
    x-batchhvd-unless: TAG     an answer with this tag is no news; nor is one for a range past a file's end (416)
    x-batchhvd-job: ID         the end of this job is news as well

    x-batchhvd-held: 1         in the answer: the service has understood
    x-batchhvd-tag: TAG        in the answer: what to send as "unless" the next time
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from batchhvd.service.http.incoming import TRUST, trust
from batchhvd.service.http.limits import HELD_BODY_BYTES, HELD_SECONDS
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Store

_STEP = 0.05
_LINK = re.compile(rb'\?[^"\s]*"')  # signed links differ in each answer
Gone = asyncio.Future[Message]  # the message that says that the client has left


class Holding:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp, ended: Callable[[str], bool], closing: Callable[[], bool] = lambda: False) -> None:
        """Creates it.

        Args:
            app: what answers.
            ended: whether the job with an id has ended or was deleted.
            closing: whether the service is about to end, so that nothing is held any more.
        """
        self._app, self._ended, self._closing = app, ended, closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        said = scope.get("headers") or ()
        wait = next((_seconds(value.decode("latin-1")) for name, value in said if name == b"x-batchhvd-wait"), None)
        if scope["type"] != "http" or wait is None:
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in said}
        body, whole = await _body(receive)
        if not whole:  # its sender may be anyone: the application checks the token before it reads on
            await self._app(scope, _joined(body, receive), send)
            return
        gone = asyncio.ensure_future(receive())  # from here on it only says that the client has left
        try:
            await self._hold(scope, body, send, headers, wait, gone)
        finally:
            gone.cancel()

    async def _hold(
        self,
        scope: Scope,
        body: bytes,
        send: Send,
        headers: Mapping[str, str],
        wait: float,
        gone: Gone,
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        job = headers.get("x-batchhvd-job", "")
        while not gone.done():
            # Asked before the look, so that what the job wrote last is in the answer that its end releases.
            over = bool(job and self._ended(job)) or self._closing() or loop.time() >= deadline
            answer = _Answer(send, headers.get("x-batchhvd-unless", ""), hold=not over)
            await self._app(answer.watched(scope), _replay(body, gone), answer)
            if not answer.withheld:
                return
            await asyncio.sleep(_STEP)


def job_over(store: Store) -> Callable[[str], bool]:
    """Returns a function that says for a job's id whether the job has ended or was deleted."""

    def over(id: str) -> bool:
        record = store.get(id)
        return record is None or (record.type == "jobs" and StoredJob.of(record).has_ended)

    return over


class _Answer:
    """Takes the messages of an answer and passes them on, unless there is no news in them."""

    def __init__(self, send: Send, unless: str, hold: bool) -> None:
        self._send, self._unless, self._hold = send, unless, hold
        self._start: Message = {}
        self._body = b""
        self._passing = self._trusted = False
        self.withheld = False

    def watched(self, scope: Scope) -> Scope:
        """Returns a request's scope that tells whether the application trusts the client: only then is it held."""

        def note() -> None:
            self._trusted = True
            trust(scope)

        return {**scope, "extensions": {**scope.get("extensions", {}), TRUST: note}}

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._passing:
            await self._send(message)
        elif not self.withheld:
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._finish()

    async def _begin(self, message: Message) -> None:
        self._start = {**message, "headers": [*message["headers"], (b"x-batchhvd-held", b"1")]}
        self._hold = self._hold and self._trusted
        if message["status"] == 416 and self._hold:
            self.withheld = True
        elif not _is_json(message):  # a file of any size: passed on as it comes
            self._passing = True
            await self._send(self._start)

    async def _finish(self) -> None:
        tag = hashlib.sha256(_LINK.sub(b'"', self._body)).hexdigest()[:32]
        if self._hold and tag == self._unless:
            self.withheld = True
            return
        self._start["headers"].append((b"x-batchhvd-tag", tag.encode()))
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": self._body})


def _is_json(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"application/json") for name, value in start["headers"]
    )


def _replay(body: bytes, gone: Gone) -> Receive:
    """Returns what stands for ``receive``: the body that was read once, then the client's leaving."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else await asyncio.shield(gone)

    return receive


def _joined(body: bytes, receive: Receive) -> Receive:
    """Returns what stands for ``receive``: the beginning of a body that was read already, then what follows."""
    messages = [{"type": "http.request", "body": body, "more_body": True}]

    async def both() -> Message:
        return messages.pop() if messages else await receive()

    return both


async def _body(receive: Receive) -> tuple[bytes, bool]:
    """Returns a request's body and whether that is all of it; reading stops once it is too large to be held."""
    body, more = b"", True
    while more and len(body) <= HELD_BODY_BYTES:
        message = await receive()
        body += message.get("body", b"")
        more = bool(message.get("more_body"))
    return body, not more


def _seconds(text: str) -> float | None:
    """Returns the seconds of a header; None if it is absent or not a number."""
    return min(float(text), HELD_SECONDS) if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text) else None
