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

from batchhvd.errors import AccessDeniedError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
"""The host names that mean this machine."""


class TokenFile:
    """A credential that reads a local service's token each time: a restarted service has another one."""

    def __init__(self, root: str) -> None:
        self._path = Path(root) / "token"

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        """Returns the token, valid for one request.

        Raises:
            AccessDeniedError: the file cannot be read.
        """
        try:
            return AccessToken(self._path.read_text(encoding="ascii").strip(), int(time.time()))
        except OSError as error:
            raise AccessDeniedError(
                f"the local service's token {self._path} cannot be read: {error.strerror}. Start the service with "
                f"batchhvd.local({str(self._path.parent)!r}), as the user who owns that folder"
            ) from error


class Token:
    """A credential that is a known token."""

    def __init__(self, token: str) -> None:
        self._token = token

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

    def __init__(self, where: Callable[[], str]) -> None:
        """Creates a transport.

        Args:
            where: returns the service's present URL, or "" to leave every URL unchanged.
        """
        super().__init__(use_env_settings=False)
        self._where = where

    def send(self, request: Any, **options: Any) -> Any:
        """Replaces host and port of a loopback URL; path, query and signatures stay as they are.

        Raises:
            ServiceResponseError: the last header, which the local service always sends, is not there. The HTTP packages
                below take such a truncated answer for a complete one.
        """
        url = urlsplit(request.url)
        now = urlsplit(self._where())
        if now.netloc and url.hostname in LOOPBACK:
            request.url = urlunsplit((now.scheme, now.netloc, url.path, url.query, url.fragment))
        response = super().send(request, **options)
        if now.netloc and "x-ms-request-id" not in response.headers:
            raise ServiceResponseError("the connection was lost in the middle of an answer's headers")
        return response
