"""HTTP servers on the loopback interface, as many as one process needs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp

from batchhvd.service.http import limits
from batchhvd.service.http.door import Door, Hall

Socket = socket.socket
_QUEUE = 512  # connections that wait in the kernel until they are accepted


def listen(port: int, host: str = "127.0.0.1") -> Socket:
    """Returns a listening socket, on the loopback interface unless told; port 0 takes a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # An answer leaves in two pieces. Without this the second one waits 40 ms for the client's acknowledgement;
    # connections inherit it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((host, port))
    listener.listen(_QUEUE)
    listener.setblocking(False)
    return listener


def url(listener: Socket, scheme: str = "http") -> str:
    """Returns the URL of a listening socket."""
    return f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"


class Server(uvicorn.Server):  # type: ignore[misc]  # mypy is told to skip uvicorn
    """An HTTP server that leaves signals to the process, says when it is ready, and lets connections in by a hall."""

    def __init__(self, config: uvicorn.Config, hall: Hall) -> None:
        super().__init__(config)
        self._hall = hall

    async def startup(self, sockets: Sequence[Socket] | None = None) -> None:
        """Listens; uvicorn's own way knows no limit for TLS handshakes."""
        await self.lifespan.startup()
        loop, secure = asyncio.get_running_loop(), self.config.ssl
        patience = limits.HEAD_SECONDS if secure else None
        # asyncio accepts as many as this in one go, before the hall can close any of those that are too many.
        at_once = max(1, limits.connections() // 8)
        self.servers = []
        for one in sockets or ():
            made = await loop.create_server(
                self._door, sock=one, ssl=secure, backlog=at_once, ssl_handshake_timeout=patience
            )
            one.listen(_QUEUE)
            self.servers.append(made)
        self.started = True

    def _door(self) -> Door:
        # The hall counts a connection when its handshake is made. Until then all that is known is that a file is open.
        if self.config.ssl and limits.open_files() > limits.connections():
            raise ConnectionRefusedError("too many connections are open")  # it is closed; nothing else can be said yet
        return Door(self._hall, self.config, self.server_state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: one process may run several servers."""
        yield


def server(app: ASGIApp, hall: Hall | None = None, **options: str) -> Server:
    """Returns a server for an application.

    Args:
        app: the application.
        hall: counts the connections, if other servers of this process share in them.
        **options: further options of uvicorn.
    """
    config = uvicorn.Config(
        app,
        http=Door,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=limits.TRUSTED_IDLE_SECONDS,  # the service must not close it before its clients do
        timeout_graceful_shutdown=2,
        **options,
    )
    return Server(config, hall or Hall())


async def serve(
    servers: Sequence[tuple[Server, Socket]],
    ready: Callable[[], None],
    ended: Callable[[], bool],
    leave: Callable[[], Awaitable[None]],
) -> None:
    """Runs servers until ``ended`` says so.

    Args:
        servers: the servers with their listening sockets.
        ready: called when all of them answer.
        ended: asked ten times a second.
        leave: awaited before the servers end.
    """
    running = [asyncio.ensure_future(one.serve(sockets=[listener])) for one, listener in servers]
    while not all(one.started for one, _ in servers) and not any(task.done() for task in running):
        await asyncio.sleep(0.01)
    ready()
    while not ended() and not any(task.done() for task in running):
        await asyncio.sleep(0.1)
    await leave()
    for one, _ in servers:
        one.should_exit = True
    await asyncio.gather(*running)
