"""``python -m batchhvd.service.login ROOT --engine NAME``: the SSH server of a service, which starts and ends it.

Standard input is a socket through which the service sends the open ports, and whose end is the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path

import asyncssh

from batchhvd._version import __version__
from batchhvd.service.http import limits
from batchhvd.service.login.door import Lobby, NodeDoor
from batchhvd.service.login.target import ClosedError, Ground, NodeTarget
from batchhvd.service.store.records import Store

log = logging.getLogger("batchhvd.service.login")
_IDLE = 600.0  # seconds without a connection after which it ends; the next connection starts another one
_MESSAGE = 1 << 16
# The SSH of 2018 signs with SHA-1, which is as good as it was then to prove who holds a key.
_SIGNATURES = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"]
_OLD_SIGNATURES = ["rsa-sha2-256", "rsa-sha2-512", "ssh-rsa"]


def main(arguments: list[str] | None = None) -> int:
    """Serves until the service ends, or nobody has been connected for a while; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m batchhvd.service.login")
    parser.add_argument("root", type=Path)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--allow-directory", action="append", default=[])
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)  # it writes what clients send
    store = Store(options.root / "state.sqlite")
    with socket.socket(fileno=os.dup(0)) as channel:
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, 0)
        ground = Ground(options.root, store, options.engine, options.allow_directory)
        asyncio.run(LoginServer(ground, channel).run())
    return 0


class LoginServer:
    """The server of all ports."""

    def __init__(self, ground: Ground, channel: socket.socket) -> None:
        self._ground, self._channel = ground, channel
        self._lobby = Lobby()
        self._ports: dict[int, asyncssh.SSHAcceptor] = {}
        self._opening: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serves."""
        over, loop = asyncio.Event(), asyncio.get_running_loop()
        self._channel.setblocking(False)
        loop.add_reader(self._channel, self._heard, over)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, over.set)
        while not over.is_set() and not self._is_idle():
            try:
                await asyncio.wait_for(over.wait(), 5)
            except asyncio.TimeoutError:
                continue
        log.info("the SSH server ends")

    def _is_idle(self) -> bool:
        lobby = self._lobby
        return not lobby.guests and not lobby.strangers and time.monotonic() - lobby.last > _IDLE

    def _heard(self, over: asyncio.Event) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, _MESSAGE, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            asyncio.get_running_loop().remove_reader(self._channel)
            over.set()
            return
        task = asyncio.get_running_loop().create_task(self._obey(json.loads(data), list(descriptors)))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _obey(self, message: dict[str, object], descriptors: list[int]) -> None:
        if "close" in message:
            self._close(int(str(message["close"])))
        for descriptor in descriptors:
            target = NodeTarget(self._ground, str(message["cluster"]), str(message["node"]))
            listener = socket.socket(fileno=descriptor)
            try:
                self._ports[int(str(message["open"]))] = await self._listening(target, listener)
            except (ClosedError, OSError) as error:
                listener.close()
                log.warning("%s is not served: %s", target.node, error)

    async def _listening(self, target: NodeTarget, listener: socket.socket) -> asyncssh.SSHAcceptor:
        key = asyncssh.import_private_key(await asyncio.to_thread(target.host_key))
        port = int(listener.getsockname()[1])
        return await asyncssh.listen(
            sock=listener,
            server_factory=lambda: NodeDoor(target, self._lobby, port),
            server_host_keys=[key],
            server_version=f"batchhvd_{__version__}",
            signature_algs=_SIGNATURES + _OLD_SIGNATURES,
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
            host_based_auth=False,
            login_timeout=limits.LOGIN_SECONDS,
            keepalive_interval=30,
        )

    def _close(self, port: int) -> None:
        acceptor = self._ports.pop(port, None)
        if acceptor is not None:
            acceptor.close()
        self._lobby.close(port)


if __name__ == "__main__":
    sys.exit(main())
