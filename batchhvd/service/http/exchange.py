"""What the service's parts pass to each other: a request that was read, the answer to it, and their context."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from attrs import field, frozen
from starlette.types import Receive, Scope, Send

from batchhvd.errors import BadRequestError, ServiceError
from batchhvd.service.store.records import Record, Store
from batchhvd.wire.facts.containers import Containers


class FileService(Protocol):
    """What the control plane needs of the data plane of Azure Files, or of blobs; a container is a share there."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request (ASGI)."""

    def sas(self, account: str, share: str, path: str, permission: str, expiry: float) -> str:
        """Returns the query string that opens one file until ``expiry``, in seconds since 1970."""

    def links(self, account: str, share: str, permission: str, expiry: float) -> Callable[[str], str]:
        """Returns what gives the query string that opens the file at a path until ``expiry``, in seconds since 1970."""

    def names(self, folder: Path, last: str, most: int) -> Sequence[str]:
        """Returns the names in a directory that come after a last one, some at most, in the order of their bytes.

        Raises:
            OSError: it cannot be read.
        """

    def directory(self, account: str, share: str) -> Path | None:
        """Returns the directory of a share, or None if the share does not exist."""

    def forget(self, account: str) -> None:
        """Deletes what is kept beside the shares of an account that does not exist any more."""


Logins = Callable[[str, Iterable[str]], Mapping[str, int]]


@frozen
class Here:
    """Where the handlers act.

    Attributes:
        store: all state.
        root: the service's folder.
        files: the file service.
        now: the clock, seconds since 1970.
        directories: the directories of the machine that jobs may mount.
        problem: says what keeps the service from answering, "" if nothing does.
        preparation: says where a job's preparation would run.
        blobs: the blob service, if there is one, and the URL below which it serves accounts by path.
        containers: what the service does with container images.
        logins: returns the ports through which nodes of a cluster can be entered, by the cluster's id and their names.
    """

    store: Store
    root: Path
    files: FileService
    now: Callable[[], float]
    directories: Sequence[str] = ()
    problem: Callable[[], str] = lambda: ""
    preparation: Callable[[], str] = lambda: ""
    blobs: tuple[FileService, str] | None = None
    containers: Containers = Containers()
    logins: Logins = lambda cluster, nodes: {}

    def storage(self, *, container: bool) -> FileService:
        """Returns the service that holds a share, or a container of blobs.

        Raises:
            ServiceError: 501, there is no blob service.
        """
        if container and self.blobs is None:
            raise ServiceError("There is no blob service here.", status=501, code="NotImplemented")
        return self.blobs[0] if container and self.blobs else self.files

    def check(self) -> None:
        """Refuses a request if something keeps the service from answering.

        Raises:
            ServiceError: 410, which clients do not repeat.
        """
        problem = self.problem()
        if problem:
            raise ServiceError(problem, status=410, code="RootGone")

    def fetch(self, type: str, parent: str | None = None) -> Callable[[int, int], Sequence[Record]]:
        """Returns what reads one page of a type's resources from the store, for ``paging.records``."""
        return lambda after, most: self.store.list(type, parent, after=after, most=most)

    def time(self) -> str:
        """Returns the present time as the documents show it."""
        return text_of(self.now())


@frozen
class Ask:
    """One request, matched, authenticated and read.

    Attributes:
        method: in upper case.
        path: as it came, still percent-encoded.
        names: the path's parameters by their names in the template.
        query: the query's parameters by lower-cased name.
        body: the JSON body, or None.
        base: scheme and host as the client sees them, such as ``http://127.0.0.1:8080``.
        warnings: fields of the body that have no effect, one sentence each.
        dry_run: whether the request is only checked; nothing may be written then.
    """

    method: str
    path: str
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    base: str = ""
    warnings: tuple[str, ...] = ()
    dry_run: bool = False


@frozen
class Answer:
    """What the service sends back: a status, a JSON body (None for none; bytes go as they are) and headers.

    Attributes:
        later: if the work goes on elsewhere, a function that returns the final answer once there is one, else None.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(factory=dict)
    later: Callable[[], Answer | None] | None = None


Handler = Callable[[Here, Ask], Answer]


@frozen
class Reading:
    """A handler that may read much and writes nothing: it acts in a thread, so that no other request waits for it.

    Attributes:
        handler: what acts.
    """

    handler: Handler

    def __call__(self, here: Here, ask: Ask) -> Answer:
        """Acts."""
        return self.handler(here, ask)


@frozen
class Act:
    """A checked request with its handler: call it to act.

    Attributes:
        handler: what acts.
        here: where.
        ask: the request.
    """

    handler: Handler
    here: Here
    ask: Ask

    @property
    def in_thread(self) -> bool:
        """Whether it should be called in a thread of its own."""
        return isinstance(self.handler, Reading)

    def __call__(self) -> Answer:
        """Acts."""
        return self.handler(self.here, self.ask)


def text_of(seconds: float) -> str:
    """Returns a time as ISO 8601 in UTC with milliseconds and Z."""
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def read_json(body: bytes) -> Any:
    """Returns a body's JSON value, None for an empty body.

    Raises:
        BadRequestError: it is not JSON, or holds text that no file name, variable or document can hold.
    """
    if not body.strip():
        return None
    try:
        value = json.loads(body, parse_constant=_no_constant)
        plain = json.dumps(value, ensure_ascii=False)
        plain.encode()
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The body is not JSON: {error}.", code="InvalidRequestContent") from error
    if "\\u0000" in plain and "\0" in _texts(value):
        raise BadRequestError("The body holds the character NUL.", code="InvalidRequestContent")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _texts(value: object) -> str:
    if isinstance(value, dict):
        return "".join(map(_texts, [*value, *value.values()]))
    if isinstance(value, list):
        return "".join(map(_texts, value))
    return value if isinstance(value, str) else ""
