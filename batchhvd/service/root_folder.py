"""The service's folder: held by one process, with a token inside, and the files by which clients find the service."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from batchhvd._version import __version__
from batchhvd.service.http.exchange import text_of
from batchhvd.service.root_watch import RootWatch
from batchhvd.service.store import durable
from batchhvd.wire.facts.process_start import ticks

_SECRET_LENGTH = 43  # 32 random bytes in base64


@contextlib.contextmanager
def lock(root: Path) -> Iterator[RootWatch | None]:
    """Holds a root for this process, and gives what watches it; None if another process holds it."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open(root / "lock", "w", encoding="ascii") as file:
            yield RootWatch(root, file.fileno()) if _taken(file.fileno()) and _taken(folder) else None
    finally:
        os.close(folder)


def _taken(file: int) -> bool:
    """Takes the lock in a few tries: a process that only tests the lock holds it for a moment itself."""
    for pause in (0.02, 0.05, 0.1, 0.2, None):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if pause is not None:
                time.sleep(pause)
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP):
                raise
            return True  # this file system locks no folders; the file is locked
    return False


def forget(root: Path) -> None:
    """Removes the files by which clients find the service."""
    for name in ("endpoint", "endpoint-tls", "proxy"):
        (root / name).unlink(missing_ok=True)


def token(root: Path) -> str:
    """Returns the root's token, created on first use and readable only by its owner.

    Raises:
        OSError: the file holds no secret that could protect the service: it is empty, cut off, or not text.
    """
    path = root / "token"
    if not path.exists():
        durable.replace(path, secrets.token_urlsafe(32), 0o600)
    found = path.read_bytes().strip()
    if len(found) < _SECRET_LENGTH or not found.isascii():
        remedy = "remove the file, and the next start creates a new one"
        raise OSError(f"{path} holds no secret of at least {_SECRET_LENGTH} characters; {remedy}")
    return found.decode("ascii")


def announce(root: Path, endpoint: str, engine: str, started: float) -> None:
    """Writes the files by which clients find the service; the endpoint last, because it means ready.

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
