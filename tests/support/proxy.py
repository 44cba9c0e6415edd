"""A TCP proxy that cuts connections: the network on a bad day."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from batchhvd.resources.session import Session
from batchhvd.wire.connection import Connection
from batchhvd.wire.facts.identity import SUBSCRIPTION
from batchhvd.wire.facts.peer_proof import PROOF_PATH, proof


class Cutter:
    """Passes bytes on in both directions and cuts each connection after some bytes of answer."""

    def __init__(self, target: Callable[[], str], most: int, seed: int = 1) -> None:
        """Starts it.

        Args:
            target: says the URL to pass to.
            most: each connection is cut after 1 to ``most`` bytes of answer.
            seed: which ones.
        """
        self._target, self._most, self._random = target, most, random.Random(seed)
        self.secret = ""  # the root's token; with it, the proxy proves for its own address that it belongs to the root
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        left = self._random.randint(1, self._most)
        address = urlsplit(self._target())
        try:
            server = socket.create_connection((address.hostname or "", address.port or 80))
        except OSError:
            client.close()
            return
        threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
        with client, server:
            while left and (data := _receive(server)):
                try:
                    client.sendall(data[:left])
                except OSError:
                    return
                left = max(0, left - len(data))
            self.cuts += left == 0
            # Closing alone would not do: the other thread still waits for this socket.
            _shut(server)
            _shut(client)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        """Passes on what the client asks; proves itself, if that is what the client asks first and it can."""
        first = _receive(client)
        if self.secret and first.startswith(b"GET " + PROOF_PATH.encode()):
            nonce = first.partition(b"nonce=")[2].partition(b" ")[0].decode()
            body = json.dumps({"proof": proof(self.secret, nonce, *self._listener.getsockname())})
            client.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            first = _receive(client)
        with contextlib.suppress(OSError):
            server.sendall(first)
        _copy(client, server)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    while data := _receive(source):
        try:
            sink.sendall(data)
        except OSError:
            break
    _shut(sink)


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except OSError:
        return b""


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other side was first
        return


def through(proxy: Cutter, service_root: Path, folder: Path) -> Session:
    """A session that reaches the service through the proxy: its root names the proxy as the endpoint."""
    folder.mkdir()
    proxy.secret = (service_root / "token").read_text().strip()
    (folder / "endpoint").write_text(proxy.url)
    (folder / "token").write_text((service_root / "token").read_text())
    return Session(Connection(proxy.url, SUBSCRIPTION, root=str(folder)))
