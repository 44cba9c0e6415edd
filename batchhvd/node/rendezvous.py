"""Horovod's rendezvous: the small server through which the ranks of a job find each other, and the way to it."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import socket
import struct
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

_SIOCGIFADDR = 0x8915


class Rendezvous(threading.Thread):
    """A key-value store over HTTP, as Horovod's gloo controller needs it: PUT, GET and DELETE of /scope/key.

    A rank deletes its own number in a scope once it is connected to all others. After the last number was deleted, the
    scope is emptied, so that Horovod can be shut down and initialized again.

    It listens from the beginning and answers after ``start()``; earlier connections wait in the kernel. Used as a
    context manager, it answers while the block runs.

    Source: horovod/common/gloo/http_store.cc of Horovod 0.28.1.

    Args:
        address: the IPv4 address to listen on.

    Attributes:
        port: the port that the system has assigned.
        name: a random name, by which ``reachable`` recognizes it.
    """

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.name = os.urandom(12).hex()
        self.listener = socket.create_server((address, 0), backlog=1024)
        self.port: int = self.listener.getsockname()[1]
        self._scopes: dict[str, dict[str, bytes]] = collections.defaultdict(dict)
        self._left: dict[str, set[str]] = collections.defaultdict(set)
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Rendezvous:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def run(self) -> None:
        """Serves until it is closed or the process ends."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                if self._closed:
                    return
                raise
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Stops listening; may be called again."""
        self._closed = True
        with contextlib.suppress(OSError):  # it is closed already
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread: closing alone would not
        self.listener.close()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(10)
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as file:
            method, path, _ = file.readline(65536).decode("latin-1").split(" ", 2)
            length = 0
            while (line := file.readline(65536)) not in (b"\r\n", b"\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            found = self.answer(method, path, file.read(length))
            status = b"404 Not Found" if found is None else b"200 OK"
            head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % (status, len(found or b""))
            connection.sendall(head + (found or b""))

    def answer(self, method: str, path: str, body: bytes) -> bytes | None:
        """Returns the answer's body, or None for what does not exist."""
        _, scope, key = (path + "//").split("/")[:3]
        with self._lock:
            if method == "PUT":
                self._scopes[scope][key] = body
                return b""
            if method == "DELETE":
                self._leave(scope, key)
                return b""
            return self.name.encode() if scope == "name" else self._scopes[scope].get(key)

    def _leave(self, scope: str, key: str) -> None:
        self._left[scope].add(key)
        if self._left[scope] >= {name for name in self._scopes[scope] if name.isdigit()}:
            self._scopes.pop(scope, None)
            self._left.pop(scope, None)


def rendezvous_variables(address: str, port: int, interface: str) -> dict[str, str]:
    """Returns the variables that tell Horovod where its rendezvous is.

    Args:
        address: the address of the rendezvous, as seen from this node.
        port: its port.
        interface: the network interface through which this node's ranks reach the others.
    """
    return {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_GLOO_IFACE": interface,
    }


def interfaces() -> list[tuple[str, str]]:
    """Returns the name and IPv4 address of each network interface, loopback last (Linux only)."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                found.append((name, socket.inet_ntoa(answer[20:24])))
    return sorted(found, key=lambda pair: pair[1].startswith("127."))


def loopback() -> str:
    """Returns the name of the loopback interface."""
    return next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")


def outgoing(address: str) -> str:
    """Returns the interface through which this node reaches an address, or "" if the system does not say."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        own = probe.getsockname()[0]
    return next((name for name, value in interfaces() if value == own), "")


def reachable(address: str, port: int, name: str) -> bool:
    """Whether the rendezvous of this name, and not some other server, answers at an address."""
    try:
        with socket.create_connection((address, port), timeout=2) as connection:
            connection.sendall(b"GET /name/ HTTP/1.1\r\nHost: rendezvous\r\n\r\n")
            return connection.makefile("rb").read().endswith(name.encode())
    except OSError:
        return False
