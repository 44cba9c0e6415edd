"""The service of this machine: its files, whether it runs, how to start it and how to stop it.

A service holds a lock on its root for as long as it lives, whatever files an earlier one has left there.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from attrs import frozen

from batchhvd.errors import AccessDeniedError, UnavailableError, WaitTimeoutError
from batchhvd.wire.facts.process_start import ticks
from batchhvd.wire.facts.times import read_moment
from batchhvd.wire.roots import Root
from batchhvd.wire.waiting import Clock, Pace, wait_until

_START = 30.0  # seconds that a service may take to answer; it takes about one
_ANOTHER = 3  # the exit code of a service that found another one in its root


@frozen
class LocalService:
    """A service that runs.

    Attributes:
        root: its folder.
        endpoint: its URL, or "" while it starts.
        pid: its process.
        started: when it started, as ISO 8601.
        engine: what runs its jobs.
        version: of the package that it runs.
        is_identified: whether the process is known by its start time too; a number alone may by now be another's.
    """

    root: str
    endpoint: str
    pid: int
    started: str
    engine: str
    version: str
    is_identified: bool


def find(root: Root) -> LocalService | None:
    """Returns the service of a root, or None when none runs."""
    about = read_about(root) if _held(Path(root) / "lock") else {}
    pid, began = _number(about.get("pid")), about.get("ticks")
    if pid <= 1 or (began is not None and ticks(pid) != began):  # it has not said yet who it is; the file is another's
        return None
    known = began is not None
    facts = {name: str(about.get(name, "")) for name in ("started", "engine", "version")}
    return LocalService(str(root), read_endpoint(root), pid, **facts, is_identified=known)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def read_endpoint(root: Root, name: str = "endpoint") -> str:
    """Returns the URL that a service wrote into its root, or "" when none runs there; the file may have outlived it.

    Args:
        root: the service's folder.
        name: the file, ``endpoint`` or that of blobs, ``endpoint-blobs``.
    """
    try:
        return (Path(root) / name).read_text(encoding="ascii", errors="replace").strip().rstrip("/")
    except OSError:
        return ""


def read_about(root: Root) -> dict[str, object]:
    """Returns what the service of a root says of itself (pid, started, version, engine); empty when none has."""
    try:
        about: object = json.loads((Path(root) / "service.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}


def read_started(root: Root) -> datetime | None:
    """Returns when the service of a root was started last; None when none has been."""
    text = str(read_about(root).get("started") or "")
    return read_moment(text) if text else None


def start(root: Root, *options: str, attached: bool = False) -> subprocess.Popen[bytes]:
    """Starts a service and returns its process without waiting for it.

    Args:
        root: its folder; it is created if it is missing.
        *options: further options of ``python -m batchhvd.service``.
        attached: whether it shares this program's terminal and session; otherwise it outlives this program.
    """
    command = [sys.executable, "-m", "batchhvd.service", "--root", str(root), *options]
    if attached:
        return subprocess.Popen(command)
    Path(root).mkdir(mode=0o700, parents=True, exist_ok=True)
    with _log(root).open("wb") as log:
        process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    # Its end has to be noticed, or it would stay behind as a zombie for as long as this program runs.
    threading.Thread(target=process.wait, daemon=True).start()
    return process


def wait_started(process: subprocess.Popen[bytes], root: Root, answers: Callable[[], bool]) -> None:
    """Waits until a service that was started answers.

    Args:
        process: the service's process.
        root: its folder.
        answers: asks the service; it may raise to end the wait.

    Raises:
        UnavailableError: it ended or does not answer in time; the message has the end of its log.
    """
    try:
        wait_until(
            lambda: (answers(), process.poll()),
            lambda seen: seen[0] or _gave_up(seen[1], root),
            timeout=_START,
            describe=lambda seen: "not answering yet",
            what=f"the local service in {root} to answer",
            pace=Pace(first=0.05, factor=1.2, longest=0.2),
        )
    except WaitTimeoutError as error:
        raise _not_started(f"has not answered within {_START:.0f} s", root) from error


def stop(root: Root, *, timeout: float = 15.0, clock: Clock | None = None) -> bool:
    """Ends the service of a root and waits until it is gone; its jobs go on, and the next service finds them.

    Args:
        root: the service's folder.
        timeout: seconds to wait.
        clock: the clock to sleep by.

    Returns:
        Whether there was one.

    Raises:
        AccessDeniedError: it is another user's.
        UnavailableError: its files do not say when its process started, so it cannot be told from another one.
        WaitTimeoutError: it did not end in time.
    """
    found = find(root)
    if found is None:
        return False
    if not found.is_identified:
        raise UnavailableError(
            f"{Path(root) / 'service.json'} does not say when process {found.pid} was started, so it may be another "
            f"program by now, and it was not signalled. Look at it with `ps -p {found.pid}`, and end it yourself",
            code="ProcessUnknown",
        )
    try:
        if not _terminate(found.pid, read_about(root).get("ticks")):
            return False
    except PermissionError as error:
        message = f"the service of {found.root} (process {found.pid}) is another user's. End it as that user"
        raise AccessDeniedError(message) from error
    wait_until(
        lambda: _held(Path(root) / "lock"),
        lambda held: not held,
        timeout=timeout,
        describe=lambda held: "it still runs",
        what=f"the service of {found.root} (process {found.pid}) to end",
        clock=clock,
        pace=Pace(first=0.02, longest=0.2),
    )
    return True


def _terminate(pid: int, began: object) -> bool:
    """Sends SIGTERM to a process if it is the one that began then, and says whether it is."""
    try:
        with _hold(pid) as signal_it:
            if ticks(pid) != began:
                return False
            signal_it()
            return True
    except ProcessLookupError:
        return False


@contextmanager
def _hold(pid: int) -> Iterator[Callable[[], None]]:
    """Gives a function that sends SIGTERM to the process that has a number now, even if another one gets the number."""
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # an old kernel, or a sandbox that does not allow it
        yield lambda: os.kill(pid, signal.SIGTERM)
        return
    try:
        yield lambda: signal.pidfd_send_signal(held, signal.SIGTERM)
    finally:
        os.close(held)


def _held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:  # no such root
        return False


def _log(root: Root) -> Path:
    return Path(root) / "start.log"


def _gave_up(code: int | None, root: Root) -> bool:
    # Another service, started at the same moment, has the root: its endpoint will appear.
    if code in (None, _ANOTHER):
        return False
    raise _not_started(f"ended with exit code {code}", root)


def _not_started(how: str, root: Root) -> UnavailableError:
    try:
        said = _log(root).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
    except OSError:
        said = []
    return UnavailableError(
        f"the local service in {root} {how}: {' | '.join(said) or 'it said nothing'}. Install its packages with "
        f"`pip install 'batchhvd[service]'`, or see {Path(root) / 'service.log'} for the reason",
        code="ServiceNotStarted",
    )
