"""Connections to the local service that carry nothing before the other end has proved that it holds the root's token.

The proof belongs to one TCP connection: as long as that is open, nobody else can take its place. A service that was
killed leaves its address behind, and any user of the machine may then listen there.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Callable
from http.client import HTTPResponse

from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from batchhvd.errors import AccessDeniedError
from batchhvd.wire.facts.peer_proof import PROOF_PATH, proof

_PATIENCE = 10.0  # seconds for an answer that takes the service less than one millisecond
_MOST = 4096  # bytes of an answer that are read


def pool(root: str, secret: Callable[[], str]) -> type[HTTPConnectionPool]:
    """Returns a class of connection pools for the service of a root.

    Args:
        root: the service's folder.
        secret: reads the root's token.
    """

    class Proven(HTTPConnection):
        """A connection whose other end has proved itself."""

        def connect(self) -> None:
            """Connects, and asks for the proof.

            Raises:
                AccessDeniedError: something else than the service of the root listens there.
            """
            super().connect()
            try:
                _ask(self.sock, root, secret())
            except BaseException:
                self.close()
                raise

    class Pool(HTTPConnectionPool):
        """Such connections to one address."""

        ConnectionCls = Proven

    return Pool


def _ask(sock: socket.socket, root: str, secret: str) -> None:
    before, nonce = sock.gettimeout(), secrets.token_hex(32)
    host, port = sock.getpeername()[:2]
    sock.settimeout(_PATIENCE)
    sock.sendall(f"GET {PROOF_PATH}?nonce={nonce} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    if not hmac.compare_digest(_answer(sock), proof(secret, nonce, host, port).encode()):
        raise AccessDeniedError(
            f"what listens at {host}:{port} did not prove that it is the service of {root}, so no token was sent to "
            "it. If a service of an older version still runs there, end it with `batchhvd serve --stop`; start the "
            "service with `batchhvd serve`",
            code="PeerNotProven",
        )
    sock.settimeout(before)


def _answer(sock: socket.socket) -> bytes:
    """Returns the proof in an answer, or b"" for an answer without one."""
    response = HTTPResponse(sock, method="GET")
    try:
        response.begin()
        body = response.read(_MOST)
        if response.status in (408, 429):  # it cannot take this connection now
            raise ConnectionError(f"the service answers {response.status}")
        return str(json.loads(body)["proof"]).encode() if response.status == 200 else b""
    except (ValueError, TypeError, KeyError, RecursionError):
        return b""
    finally:
        response.close()
