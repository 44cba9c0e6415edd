"""Gives the nodes of clusters their ports, and starts the SSH server when somebody connects to one for the first time.

The ports are opened here, in the service, which takes no time; connections wait in the kernel until the server has
taken the open ports over. It is a process of its own: no login holds up the service, and none outlives it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from attrs import define

from batchhvd.service.http import limits
from batchhvd.service.login import host_key
from batchhvd.service.store import durable
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.records import Store

log = logging.getLogger("batchhvd.service.login")
_PAUSE = 1.0  # seconds between two looks for nodes that are gone
ADDRESS = "127.0.0.1"


@define
class _Port:
    """An open port: its socket, the key of its cluster, and its node."""

    listener: socket.socket
    cluster: str
    node: str

    @property
    def number(self) -> int:
        return int(self.listener.getsockname()[1])


class LoginDesk:
    """The ports of all nodes, and the process that serves them.

    Args:
        root: the service's folder.
        store: all state.
        arguments: what the server is started with, besides the root.
    """

    def __init__(self, root: Path, store: Store, arguments: Sequence[str] = ()) -> None:
        self._root, self._store, self._arguments = root, store, arguments
        self._ports: dict[tuple[str, str], _Port] = {}
        self._file = root / "logins" / "ports.json"
        self._lock = threading.Lock()
        self._closing, self._thread = threading.Event(), threading.Thread(target=self._watch, name="logins")
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def ports(self, cluster: str, nodes: Iterable[str]) -> Mapping[str, int]:
        """Returns the ports of nodes, which listen from now on; some or all are missing if they cannot be served.

        Args:
            cluster: the cluster's id.
            nodes: the names of its nodes.
        """
        if not is_possible():
            return {}
        with self._lock:
            wanted = [(cluster.lower(), node) for node in nodes]
            if any(pair not in self._ports for pair in wanted):
                self._open_all(wanted, _remembered(self._file))
                self._remember()
            return {node: self._ports[key, node].number for key, node in wanted if (key, node) in self._ports}

    def resume(self) -> None:
        """Opens the ports that an earlier service had given, as far as their nodes still exist and they are free."""
        if not self._file.exists() or not is_possible():
            return
        known = _remembered(self._file)
        with self._lock:
            self._open_all([pair for pair in known if pair[1] in self._nodes(pair[0])], known)
            self._remember()

    def close(self) -> None:
        """Ends the server with all logins, and closes the ports."""
        self._closing.set()
        if self._thread.ident:
            self._thread.join()
        with self._lock:
            self._end_server()
            for port in self._ports.values():
                port.listener.close()
            self._ports.clear()

    # -- ports --

    def _open_all(self, wanted: Iterable[tuple[str, str]], known: Mapping[tuple[str, str], int]) -> None:
        for pair in wanted:
            if pair not in self._ports and len(self._ports) < limits.login_nodes():
                try:
                    self._open(pair, known.get(pair, 0))
                except OSError as error:
                    log.warning("node %s gets no port for logins: %s", pair[1], error)
        if self._ports and not self._thread.ident:
            self._thread.start()

    def _open(self, pair: tuple[str, str], number: int) -> None:
        try:
            listener = socket.create_server((ADDRESS, number), backlog=limits.LOGIN_STRANGERS)
        except OSError:
            if not number:
                raise
            log.warning("port %d is taken: node %s gets another one for logins", number, pair[1])
            listener = socket.create_server((ADDRESS, 0), backlog=limits.LOGIN_STRANGERS)
        port = self._ports[pair] = _Port(listener, *pair)
        self._tell({"open": port.number, "cluster": port.cluster, "node": port.node}, port.listener)

    def _remember(self) -> None:
        host_key.folder(self._root)
        found = [[port.cluster, port.node, port.number] for port in self._ports.values()]
        durable.replace(self._file, json.dumps(found), 0o600)

    def _nodes(self, cluster: str) -> Sequence[str]:
        record = self._store.get(cluster)
        if record is None or record.type != "clusters" or (found := StoredCluster.of(record)).is_deleting:
            return ()
        return found.names

    def _prune(self) -> None:
        nodes = {cluster: self._nodes(cluster) for cluster in {cluster for cluster, _ in self._ports}}
        gone = [pair for pair in self._ports if pair[1] not in nodes[pair[0]]]
        for pair in gone:
            port = self._ports.pop(pair)
            self._tell({"close": port.number})
            port.listener.close()
        if gone:
            self._remember()

    # -- the server --

    def _watch(self) -> None:
        """Starts the server when a connection comes, closes the ports of nodes that are gone, until the desk closes."""
        while not self._closing.is_set():
            try:
                if self._has_visitor():
                    with self._lock:
                        self._start_server()
                with self._lock:
                    self._prune()
            except Exception:
                log.exception("the logins could not be looked after; the next look tries again")
                self._closing.wait(_PAUSE)

    def _has_visitor(self) -> bool:
        """Waits for a moment; returns whether a connection waits and no server takes it."""
        with self._lock:
            if self._server is not None and self._server[0].poll() is not None:
                log.info("the SSH server has ended; the next connection starts it again")
                self._end_server()
            listeners = [] if self._server else [port.listener for port in self._ports.values()]
        if not listeners:
            self._closing.wait(_PAUSE)
            return False
        with selectors.DefaultSelector() as selector:
            for listener in listeners:
                with contextlib.suppress(ValueError):  # closed meanwhile
                    selector.register(listener, selectors.EVENT_READ)
            return bool(selector.select(_PAUSE / 2)) and not self._closing.is_set()

    def _start_server(self) -> None:
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.settimeout(1)  # a server that hangs must not hold up the service
        with other, open(self._root / "logins" / "server.log", "ab") as output:
            words = [sys.executable, "-m", "batchhvd.service.login", str(self._root), *self._arguments]
            process = subprocess.Popen(
                words, stdin=other.fileno(), stdout=output, stderr=output, start_new_session=True
            )
        self._server = process, own
        log.info("the SSH server runs as process %d", process.pid)
        for port in self._ports.values():
            self._tell({"open": port.number, "cluster": port.cluster, "node": port.node}, port.listener)

    def _tell(self, message: Mapping[str, object], *sockets: socket.socket) -> None:
        if self._server is not None:
            with contextlib.suppress(OSError):  # it has ended, which is seen elsewhere
                descriptors = [part.fileno() for part in sockets]
                socket.send_fds(self._server[1], [json.dumps(message).encode()], descriptors)

    def _end_server(self) -> None:
        if self._server is None:
            return
        process, channel = self._server
        self._server = None
        channel.close()  # the server ends when this end is gone
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_possible() -> bool:
    """Whether the package that serves SSH is installed."""
    return importlib.util.find_spec("asyncssh") is not None


def _remembered(file: Path) -> dict[tuple[str, str], int]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return {(str(cluster), str(node)): int(port) for cluster, node, port in json.loads(file.read_text())}
    return {}
