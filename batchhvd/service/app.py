"""The ASGI application. For each request in this order: for whom, from whom, what for, is it right, act, answer."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from attrs import evolve
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from batchhvd._version import __version__
from batchhvd.errors import AccessDeniedError, BadRequestError, NotFoundError, ServiceError
from batchhvd.service.arm import groups as arm
from batchhvd.service.arm import storage_accounts as accounts
from batchhvd.service.batchai.handlers import handlers
from batchhvd.service.description.published import VERSION, Description, Operation
from batchhvd.service.http import paging, tokens
from batchhvd.service.http.exchange import Answer, Ask, FileService, Handler, Here, read_json
from batchhvd.service.http.routes import Match, Routes
from batchhvd.service.status import page, summary
from batchhvd.service.store.records import Store
from batchhvd.wire.facts.identity import SUBSCRIPTION

log = logging.getLogger("batchhvd.service")

# Names that a client may have asked for and still mean this service: the machine's own, and the public names that come
# through its proxy. Every other name is a web page's attempt to reach it through a name of its own (DNS rebinding).
_HOSTS = re.compile(
    r"(127\.0\.0\.1|localhost|\[::1\]|management\.azure\.com|management\.core\.windows\.net"
    r"|login\.microsoftonline\.com|login\.windows\.net|[a-z0-9]{3,24}\.file\.core\.windows\.net)(:\d+)?",
    re.IGNORECASE,
)
_FILE_HOST = re.compile(r"[a-z0-9]{3,24}\.file\.", re.IGNORECASE)
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_TOKEN = re.compile(r"/(?:[^/]+/)?(oauth2/token|oauth2/v2\.0/token)/?", re.IGNORECASE)
_CONFIGURATION = re.compile(r"/([^/]+)/v2\.0/\.well-known/openid-configuration", re.IGNORECASE)
_WRITES = frozenset({"PUT", "PATCH", "DELETE"})
_DRY_RUN = "x-batchhvd-dry-run"
_LARGEST = 4 * 1024 * 1024
# A scheduler that is done this soon spares the client a second look.
_PATIENCE, _STEP = 0.4, 0.02


def build(
    store: Store,
    root: Path,
    token: str,
    wake: Callable[[], None],
    files: FileService,
    now: Callable[[], float] = time.time,
    touch: Callable[[], None] = lambda: None,
    directories: Sequence[str] = (),
) -> App:
    """Returns the application.

    Args:
        store: all state.
        root: the service's folder.
        token: the secret that opens it.
        wake: tells the scheduler that there is something new.
        files: the file service.
        now: the clock, seconds since 1970.
        touch: is told of each request, for who ends an idle service.
        directories: the directories of the machine that jobs may mount.
    """
    here = Here(store, root, files, now, directories)
    return App(here, tokens.Tokens(token, now), Description.published(), wake, touch)


class App:
    """The ASGI application of the control plane; hands the file service its own requests."""

    def __init__(
        self,
        here: Here,
        bearer: tokens.Tokens,
        description: Description,
        wake: Callable[[], None],
        touch: Callable[[], None],
    ) -> None:
        self._here, self._bearer, self._description = here, bearer, description
        self._wake, self._touch = wake, touch
        self._handlers = handlers(description)
        self._routes: Routes[Operation | Handler] = Routes()
        for operation in description.operations:
            self._routes.add(operation.method, operation.template, operation)
        for route in (*arm.ROUTES, *accounts.ROUTES):
            self._routes.add(*route)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            return
        self._touch()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host, send = headers.get("host", ""), _named(send)
        if _HOSTS.fullmatch(host) and _for_files(host, scope):
            await self._here.files(scope, receive, send)
            return
        request_id = str(uuid.uuid4())
        answer = await self._answer(Request(scope, receive), headers, host, request_id)
        await _render(answer, request_id, scope["method"] == "HEAD")(scope, receive, send)

    async def _answer(self, request: Request, headers: Mapping[str, str], host: str, request_id: str) -> Answer:
        started, path = time.perf_counter(), request.scope["raw_path"].decode("latin-1")
        try:
            answer = await self._act(request, headers, host, path)
        except ServiceError as error:
            answer = _refusal(error)
        except ClientDisconnect:
            return Answer(400)
        except Exception:
            log.exception("%s %s failed; request %s", request.method, path, request_id)
            text = f"The service failed on this request; its log tells more under {request_id}."
            answer = Answer(500, {"error": {"code": "InternalServerError", "message": text}})
        if request.method in _WRITES or answer.status >= 400:
            took = 1000 * (time.perf_counter() - started)
            log.info("%s %s %d %.1f ms %s", request.method, path, answer.status, took, request_id)
        return answer

    async def _act(self, request: Request, headers: Mapping[str, str], host: str, path: str) -> Answer:
        if not _HOSTS.fullmatch(host):
            raise AccessDeniedError(f"This service does not answer for the host '{host}'.", code="HostNotAllowed")
        base = f"{_scheme(request, headers)}://{host}"
        public = await self._public(request, path, base)
        if public is not None:
            return public
        self._authenticate(headers)
        if request.method == "GET" and path == "/status.json":
            return summary.answer(self._here)
        query = _query(request)
        body = await _body(request)
        dry_run = _dry_run(headers)
        act = self._prepare(request.method, path, query, body, base, dry_run)
        return act() if dry_run else await self._settle(self._do(request.method, act))

    def _do(self, method: str, act: Callable[[], Answer]) -> Answer:
        """Acts; what writes does so in one transaction, so that the scheduler cannot take a parent away meanwhile."""
        if method not in _WRITES:
            answer = act()
        else:
            with self._here.store.transaction():
                answer = act()
        if method in _WRITES or answer.later:
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

    async def _public(self, request: Request, path: str, base: str) -> Answer | None:
        """Answers what needs no token: how to get one, and the status page, which asks for one."""
        grant, configuration = _TOKEN.fullmatch(path), _CONFIGURATION.fullmatch(path)
        plain = path.lower().rstrip("/")
        if request.method == "POST" and grant:
            version = 2 if "v2.0" in grant.group(1).lower() else 1
            return tokens.grant(self._bearer, await _body(request), version)
        if request.method == "GET" and configuration:
            return tokens.configuration(base, configuration.group(1))
        if request.method == "GET" and plain == "/common/discovery/instance":
            return tokens.discovery(base)
        if request.method in ("GET", "HEAD") and path == "/":
            return page.answer()
        if request.method == "GET" and plain == "/metadata/endpoints":
            return Answer(200, _endpoints(base))
        return None

    def _authenticate(self, headers: Mapping[str, str]) -> None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._bearer.accepts(token.strip()):
            raise AccessDeniedError(
                "This request has no valid token: send the content of the service's file 'token' as bearer token.",
                status=401,
                code="AuthenticationFailed",
            )

    def _prepare(
        self, method: str, path: str, query: dict[str, str], body: bytes, base: str, dry_run: bool
    ) -> Callable[[], Answer]:
        """Returns the checked request as something to call."""
        match = self._match(method, path, query)
        if dry_run and not (isinstance(match.target, Operation) and match.target.id == "Jobs_Create"):
            raise BadRequestError(f"{_DRY_RUN} is possible only for creating a job.", code="DryRunNotSupported")
        _check_subscription(match.names.get("subscriptionId") or match.names.get("subscription"))
        if "api-version" not in query:
            raise BadRequestError("The query has no api-version.", code="MissingApiVersionParameter")
        ask = Ask(method, path, match.names, query, read_json(body), base, dry_run=dry_run)
        if isinstance(match.target, Operation):
            return partial(self._handlers[match.target.id], self._here, self._checked(match.target, ask))
        return partial(match.target, self._here, ask)

    def _checked(self, operation: Operation, ask: Ask) -> Ask:
        """Returns a request to Batch AI as the description has it."""
        _check_version(ask.query["api-version"])
        self._description.check_names(operation, ask.names)
        query = self._description.read_query(operation, ask.query)
        value, unknown = self._description.read_body(operation, ask.body)
        warnings = tuple(f"{at} is no field of API version {VERSION} and has no effect." for at in unknown)
        return evolve(ask, query=query, body=value, warnings=warnings)

    def _match(self, method: str, path: str, query: Mapping[str, str]) -> Match[Operation | Handler]:
        if method == "GET" and paging.TOKEN in query:
            # Clients follow nextLink with GET, also where the first page was asked for with POST.
            for tried in ("GET", "POST"):
                try:
                    return self._routes.match(tried, path)
                except BadRequestError:
                    continue
        return self._routes.match(method, path)


def _named(send: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Returns a ``send`` that adds to each answer which service gave it."""

    async def named(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [(b"x-batchhvd-service", __version__.encode()), *message["headers"]]}
        await send(message)

    return named


def _dry_run(headers: Mapping[str, str]) -> bool:
    """Says whether a request is only to be checked; a word that could be meant so must not create anything."""
    word = headers.get(_DRY_RUN, "false").lower()
    if word not in ("true", "false"):
        raise BadRequestError(f"{_DRY_RUN} must be true or false, not '{word}'.", code="InvalidHeaderValue")
    return word == "true"


def _for_files(host: str, scope: Mapping[str, Any]) -> bool:
    if _FILE_HOST.match(host):
        return True
    path = scope["raw_path"].decode("latin-1")
    first = path.lstrip("/").partition("/")[0]
    if not _ACCOUNT.fullmatch(first) or first in accounts.RESERVED:
        return False
    return not (_TOKEN.fullmatch(path) or _CONFIGURATION.fullmatch(path))


def _scheme(request: Request, headers: Mapping[str, str]) -> str:
    forwarded = headers.get("x-forwarded-proto", "").lower()
    return forwarded if forwarded in ("http", "https") else str(request.scope["scheme"])


def _query(request: Request) -> dict[str, str]:
    try:
        text = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise BadRequestError("The query is not UTF-8, or too long.", code="InvalidRequestUri") from error
    return {name.lower(): value for name, value in pairs}


async def _body(request: Request) -> bytes:
    if request.method in ("GET", "HEAD"):
        return b""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST:
            raise BadRequestError(
                f"The body has more than {_LARGEST} bytes.", status=413, code="RequestContentTooLarge"
            )
    return body


def _check_subscription(subscription: str | None) -> None:
    if subscription is not None and subscription.lower() != SUBSCRIPTION:
        raise NotFoundError(
            f"The subscription '{subscription}' could not be found; the only one here is {SUBSCRIPTION}.",
            code="SubscriptionNotFound",
        )


def _check_version(version: str) -> None:
    if version != VERSION:
        raise BadRequestError(
            f"The api-version '{version}' is not supported for Microsoft.BatchAI; {VERSION} is.",
            code="InvalidApiVersionParameter",
        )


def _endpoints(base: str) -> dict[str, Any]:
    return {
        "galleryEndpoint": base,
        "graphEndpoint": base,
        "portalEndpoint": base,
        "authentication": {"loginEndpoint": f"{base}/adfs", "audiences": ["https://management.core.windows.net/"]},
    }


def _refusal(error: ServiceError) -> Answer:
    body: dict[str, Any] = {"code": error.code, "message": str(error)}
    if error.target:
        body["target"] = error.target
    if error.details:
        body["details"] = list(error.details)
    return Answer(error.status or 400, {"error": body})


def _render(answer: Answer, request_id: str, head: bool) -> Response:
    body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
    content = b"" if answer.body is None or head else body
    response = Response(content, answer.status, answer.headers)
    if content and "Content-Type" not in answer.headers:
        response.headers["Content-Type"] = "application/json; charset=utf-8"
    response.headers["x-ms-request-id"] = request_id  # the last one: where it has arrived, all have
    return response
