"""How to speak to a service on this machine: its address, its token, and that neither goes anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from azure.core.credentials import AccessToken
from azure.core.exceptions import ServiceResponseError
from azure.core.pipeline import PipelineRequest
from azure.core.pipeline.policies import BearerTokenCredentialPolicy
from azure.core.pipeline.transport import RequestsTransport
from requests import Session

from batchhvd.errors import AccessDeniedError
from batchhvd.wire import proven
from batchhvd.wire.facts.secrets import is_secret

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""The host names that mean this machine."""


class TokenFile:
    """A credential that reads a local service's token each time: a restarted service has another one."""

    def __init__(self, root: str) -> None:
        self._path = Path(root) / "token"

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """Returns the token, valid for one request.

        Raises:
            AccessDeniedError: the file cannot be read, or holds no secret.
        """
        return AccessToken(self.read(), int(time.time()))

    def read(self) -> str:
        """Returns the token.

        Raises:
            AccessDeniedError: the file cannot be read, or holds no secret.
        """
        try:
            found = self._path.read_bytes().strip()
        except OSError as error:
            raise self._unusable(f"cannot be read: {error.strerror}") from error
        if not is_secret(found):
            raise self._unusable("holds no secret")
        return found.decode("ascii")

    def _unusable(self, how: str) -> AccessDeniedError:
        return AccessDeniedError(
            f"the local service's token {self._path} {how}. Start the service with "
            f"batchhvd.local({str(self._path.parent)!r}), as the user who owns that folder"
        )


class Token:
    """A credential that is a known token.

    Attributes:
        source: where it was found, such as the name of a variable; "" if the caller gave it.
    """

    def __init__(self, token: str, source: str = "") -> None:
        self._token, self.source = token, source

    def __repr__(self) -> str:
        return "Token(…)"

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """Returns the token; only the service knows whether it is still valid."""
        return AccessToken(self._token, int(time.time()) + 3600)


class LoopbackBearer(BearerTokenCredentialPolicy[Any, Any]):
    """Sends the bearer token over http, but to no other machine than this one."""

    def on_request(self, request: PipelineRequest[Any]) -> None:
        """Rejects other machines, then sends the token as the Azure packages do over https."""
        host = urlsplit(request.http_request.url).hostname
        if host not in LOOPBACK:
            raise AccessDeniedError(
                f"the local service's token was not sent to {host}: it is for this machine only. Connect to that "
                "endpoint with batchhvd.connect() and a credential of its own"
            )
        request.context.options["enforce_https"] = False
        super().on_request(request)


class LocalTransport(RequestsTransport):  # type: ignore[misc]  # exported through a lazy attribute, without a type
    """Sends each attempt to the present address of the local service, past any proxy of the environment."""

    def __init__(self, where: Callable[[str], str], root: str | None = None) -> None:
        """Creates a transport.

        Args:
            where: returns the service's present URL for a request with a query, or "" to leave the URL unchanged.
            root: the folder of the service that each connection has to prove to be; None for any service.
        """
        # Complete before its first use: threads that share it must not find it half made.
        session = Session()
        super().__init__(session=session, use_env_settings=False)
        self._init_session(session)
        if root is not None:
            pools = {"http": proven.pool(root, TokenFile(root).read)}
            session.get_adapter("http://").poolmanager.pool_classes_by_scheme = pools  # type: ignore[attr-defined]
        self._where = where

    def send(self, request: Any, **options: Any) -> Any:
        """Replaces host and port of a loopback URL; path, query and signatures stay as they are.

        Raises:
            AccessDeniedError: what listens there did not prove to be the service of the root; nothing was sent to it.
            ServiceResponseError: the last header, which the local service always sends, is not there. The HTTP packages
                below take such a truncated answer for a complete one.
        """
        url = urlsplit(request.url)
        now = urlsplit(self._where(url.query))
        if now.netloc and url.hostname in LOOPBACK:
            request.url = urlunsplit((now.scheme, now.netloc, url.path, url.query, url.fragment))
        response = super().send(request, **options)
        if now.netloc and "x-ms-request-id" not in response.headers:
            raise ServiceResponseError("the connection was lost in the middle of an answer's headers")
        return response
