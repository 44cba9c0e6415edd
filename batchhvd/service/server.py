"""HTTP servers on the loopback interface, as many as one process needs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence

import uvicorn
from starlette.types import ASGIApp

Socket = socket.socket


def listen(port: int, host: str = "127.0.0.1") -> Socket:
    """Returns a listening socket, on the loopback interface unless told; port 0 takes a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # An answer leaves in two pieces. Without this the second one waits 40 ms for the client's acknowledgement;
    # connections inherit it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((host, port))
    listener.listen(512)
    listener.setblocking(False)
    return listener


def url(listener: Socket, scheme: str = "http") -> str:
    """Returns the URL of a listening socket."""
    return f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"


class Server(uvicorn.Server):  # type: ignore[misc]  # mypy is told to skip uvicorn
    """An HTTP server that leaves signals to the process and says when it is ready."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: one process may run several servers."""
        yield


def server(app: ASGIApp, **options: str) -> Server:
    """Returns a server for an application."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        # Longer than clients keep a connection for their next request: the service must not close it first.
        timeout_keep_alive=120,
        timeout_graceful_shutdown=2,
        **options,
    )
    return Server(config)


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
