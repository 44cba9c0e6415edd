"""One HTTP request to the control plane as it comes in: its head read at once, query and body when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.types import Receive, Scope

from batchhvd.errors import BadRequestError
from batchhvd.service.http import limits

DRY_RUN = "x-batchhvd-dry-run"
TRUST = "batchhvd.trust"
"""The extension of ASGI by which the application tells the server whom it trusts."""

CUT = "batchhvd.cut"
"""The extension by which an application ends the connection at once, as a network failure would."""

_WRITES = frozenset({"PUT", "PATCH", "DELETE"})


def trust(scope: Scope) -> None:
    """Tells the server that the client of a request has shown a token, a key, a link or a session."""
    tell = scope.get("extensions", {}).get(TRUST)
    if tell is not None:
        tell()


class Incoming:
    """A request.

    Attributes:
        method: in upper case.
        path: as it came, still percent-encoded.
        headers: header values by lower-cased name.
        host: the host that the client asked, with its port.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope, self._receive = scope, receive
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("latin-1")
        self.headers: Mapping[str, str] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        self.host = self.headers.get("host", "")

    @property
    def writes(self) -> bool:
        """Whether the method changes something."""
        return self.method in _WRITES

    @property
    def hosts(self) -> int:
        """The number of Host headers; more than one is a disguise."""
        return sum(name == b"host" for name, _ in self._scope["headers"])

    @cached_property
    def base(self) -> str:
        """Scheme and host as the client sees them; a TLS proxy in front of the service reports the scheme."""
        forwarded = self.headers.get("x-forwarded-proto", "").lower()
        scheme = forwarded if forwarded in ("http", "https") else self._scope["scheme"]
        return f"{scheme}://{self.host}"

    @property
    def server(self) -> tuple[str, int]:
        """The address at which this connection arrived, whatever the client says."""
        host, port = self._scope["server"]
        return host, port or 0

    @property
    def plain_path(self) -> str:
        """The path in lower case, without slashes at its end."""
        return self.path.lower().rstrip("/")

    @property
    def query_string(self) -> bytes:
        """The query as it came."""
        query: bytes = self._scope["query_string"]
        return query

    def query(self) -> dict[str, str]:
        """Returns the query's parameters by lower-cased name.

        Raises:
            BadRequestError: 400, it is not UTF-8, or has too many parameters.
        """
        try:
            text = self.query_string.decode("ascii")
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=limits.QUERY_FIELDS)
        except ValueError as error:
            wrong = f"The query is not UTF-8, or has more than {limits.QUERY_FIELDS} parameters."
            raise BadRequestError(wrong, code="InvalidRequestUri") from error
        return {name.lower(): value for name, value in pairs}

    async def body(self, most: int = limits.BODY_BYTES) -> bytes:
        """Returns the whole body; empty for requests that only read.

        Args:
            most: how many bytes it may have.

        Raises:
            BadRequestError: 413, it is too large.
            ClientDisconnect: the client went away.
        """
        body = b""
        if self.method in ("GET", "HEAD"):
            return body
        async for part in Request(self._scope, self._receive).stream():
            body += part
            if len(body) > most:
                text = f"The body has more than {most} bytes."
                raise BadRequestError(text, status=413, code="RequestContentTooLarge")
        return body

    def trust(self) -> None:
        """Tells the server that this connection's client has shown a token, a key, a link or a session."""
        trust(self._scope)

    def dry_run(self) -> bool:
        """Says whether a request is only to be checked; an unclear word must not create anything.

        Raises:
            BadRequestError: 400, the header says neither true nor false.
        """
        word = self.headers.get(DRY_RUN, "false").lower()
        if word not in ("true", "false"):
            raise BadRequestError(f"{DRY_RUN} must be true or false, not '{word}'.", code="InvalidHeaderValue")
        return word == "true"
