"""The service as a process: one for each root, found by its files, ended when nothing needs it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any, Protocol

import uvicorn

from batchhvd._version import __version__
from batchhvd.service.http.exchange import text_of
from batchhvd.service.store import durable
from batchhvd.wire.facts.process_start import ticks

log = logging.getLogger("batchhvd.service")
LEAST_TOKEN = 43
"""How long a token is at least: 32 random bytes in base64."""


@contextlib.contextmanager
def lock(root: Path) -> Iterator[bool]:
    """Holds a root for this process; gives False where another one holds it."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(root / "lock", "w", encoding="ascii") as file:
        yield _taken(file)


def _taken(file: IO[str]) -> bool:
    """Takes the lock in a few tries: who only asks whether somebody holds it holds it for a moment itself."""
    for pause in (0.02, 0.05, 0.1, 0.2, None):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if pause is not None:
                time.sleep(pause)
    return False


def forget(root: Path) -> None:
    """Removes the files that clients find the service by."""
    for name in ("endpoint", "endpoint-tls", "proxy"):
        (root / name).unlink(missing_ok=True)


def token(root: Path) -> str:
    """Returns the root's token, made on first use and readable by its owner only.

    Raises:
        OSError: the file holds something shorter than a token of ours, which would open the service to others.
    """
    path = root / "token"
    if not path.exists():
        durable.replace(path, secrets.token_urlsafe(32), 0o600)
    found = path.read_bytes().decode("ascii", "replace").strip()
    if len(found) < LEAST_TOKEN or not found.isascii():
        text = (
            f"the secret in {path} is damaged: it must be at least {LEAST_TOKEN} ASCII characters; it is {len(found)}"
        )
        raise OSError(f"{text}. Remove the file, and the next start makes a new one")
    return found


def log_to(path: Path) -> None:
    """Sends the service's log to a file of limited size."""
    handler = RotatingFileHandler(path, maxBytes=5_000_000, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for name in ("batchhvd", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        logger.propagate = False


Socket = socket.socket


def listen(port: int) -> Socket:
    """Returns a listening socket on the loopback interface; port 0 takes a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # An answer leaves in two pieces. Without this the second one waits 40 ms for the client's acknowledgement;
    # connections inherit it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind(("127.0.0.1", port))
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


def server(app: Any, **options: Any) -> Server:
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
        # Longer than clients keep a connection for their next request: who closes first must not be the service.
        timeout_keep_alive=120,
        timeout_graceful_shutdown=2,
        **options,
    )
    return Server(config)


class Activity:
    """Knows when the service was last needed."""

    def __init__(self, busy: Callable[[], bool], now: Callable[[], float] = time.monotonic) -> None:
        self._busy, self._now = busy, now
        self._last = now()

    def touch(self) -> None:
        """Notes that the service is needed now."""
        self._last = self._now()

    def unneeded(self, seconds: float) -> bool:
        """Says whether nothing has needed the service for so long; a job that has not ended needs it."""
        if self._now() - self._last <= seconds:
            return False
        if self._busy():
            self.touch()
            return False
        return True


def announce(root: Path, endpoint: str, engine: str, started: float) -> None:
    """Writes the files that clients find the service by; the endpoint last, because it means ready.

    Args:
        root: the service's folder.
        endpoint: its URL.
        engine: what runs its jobs.
        started: when it started, before it looked at any job, in seconds since 1970.
    """
    about = {
        "pid": os.getpid(),
        "ticks": ticks(os.getpid()),
        "started": text_of(started),
        "version": __version__,
        "engine": engine,
    }
    durable.replace(root / "service.json", json.dumps(about) + "\n")
    durable.replace(root / "endpoint", endpoint + "\n")


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


class Ticking(Protocol):
    """What moves with each tick, and says afterwards whether anything still moves."""

    active: bool

    def tick(self) -> None:
        """Moves everything one step."""


def schedule(scheduler: Ticking, wake: threading.Event, stop: threading.Event) -> None:
    """Calls the scheduler again and again: at once when woken, ten times a second while something moves."""
    while not stop.is_set():
        wake.clear()
        try:
            scheduler.tick()
        except Exception:
            # The next tick may well succeed; a scheduler that is gone never would.
            log.exception("the scheduler failed; it goes on")
        wake.wait(0.1 if scheduler.active else 0.5)
