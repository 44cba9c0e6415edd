"""The service's folder: held by one process, with a token inside, and the files by which clients find the service."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from batchhvd._version import __version__
from batchhvd.service.http.exchange import text_of
from batchhvd.service.root_watch import RootWatch
from batchhvd.service.store import durable
from batchhvd.wire.facts.process_start import ticks
from batchhvd.wire.facts.secrets import SECRET_LENGTH, is_secret

_log = logging.getLogger(__name__)


def make(root: Path) -> None:
    """Makes a root for its owner only, if there is none.

    Raises:
        OSError: every user may write to it, and so give it another token.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.stat().st_mode & stat.S_IWOTH:
        raise OSError(
            f"every user of this machine may write to {root}; take that away with `chmod o-w`, or use another"
        )


@contextlib.contextmanager
def lock(root: Path) -> Iterator[RootWatch | None]:
    """Holds a root for this process, and gives what watches it; None if another process holds it."""
    make(root)
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
    for name in ("endpoint", "endpoint-blobs", "endpoint-tls", "proxy"):
        (root / name).unlink(missing_ok=True)


class RootSecret:
    """The root's token as it is now: another one in its file counts from the next request on."""

    def __init__(self, root: Path) -> None:
        """Reads the token; creates one, readable only by its owner, if there is none.

        Raises:
            OSError: the file holds no secret that could protect the service: it is empty, cut off, or not text.
        """
        self._path = root / "token"
        if not self._path.exists():
            renew(root)
        self._secret, self._seen = _read(self._path), self._stamp()

    def __call__(self) -> str:
        """Returns the token; the last one that was good while the file is missing or holds none."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._secret = _read(self._path)
                _log.info("the file 'token' has changed; only the new token opens the service now")
            except OSError as error:
                _log.warning("the token was not taken over, the old one still counts: %s", error)
        return self._secret

    def _stamp(self) -> tuple[int, ...]:
        try:
            about = os.stat(self._path)
        except OSError:
            return ()
        return about.st_ino, about.st_mtime_ns, about.st_size


def renew(root: Path) -> None:
    """Gives a root a new token."""
    durable.replace(root / "token", secrets.token_urlsafe(32), 0o600)


def _read(path: Path) -> str:
    found = path.read_bytes().strip()
    if not is_secret(found):
        remedy = "remove the file, and the next start creates a new one"
        raise OSError(f"{path} holds no secret of at least {SECRET_LENGTH} characters; {remedy}")
    return found.decode("ascii")


def announce(root: Path, endpoint: str, engine: str, started: float, options: Mapping[str, object]) -> None:
    """Writes the files by which clients find the service; the endpoint last, because it means ready.

    Args:
        root: the service's folder.
        endpoint: its URL.
        engine: what runs its jobs.
        started: when it started, before it looked at any job, in seconds since 1970.
        options: what else it was started with.
    """
    about = {
        "pid": os.getpid(),
        "ticks": ticks(os.getpid()),
        "started": text_of(started),
        "version": __version__,
        "engine": engine,
        "options": dict(options),
    }
    durable.replace(root / "service.json", json.dumps(about) + "\n")
    durable.replace(root / "endpoint", endpoint + "\n")
