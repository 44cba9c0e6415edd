"""Enters a node of a running task: a program starts there as the ranks did, with their files and their variables.

    python3 -I -S node-DIGEST.pyz FOLDER INDEX --enter WORD...
    python3 -I -S node-DIGEST.pyz FOLDER INDEX --enter --measure SECONDS

It runs as the user who enters, ends with the program's exit code, and takes everything that the program has started
with it. When the node ends, the program is told to hang up, and killed soon after.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from pathlib import Path

from batchhvd.node.contained import container_name
from batchhvd.node.container import inside
from batchhvd.node.container.engine import ContainerEngine
from batchhvd.node.folder.durable import DamagedRecordError
from batchhvd.node.folder.records import has_ended, read_node, read_task
from batchhvd.node.folder.state import NodeState, PreparationPlace
from batchhvd.node.place import TaskPlace
from batchhvd.node.processes import adopt_orphans, descendants, die_with_parent, end_all, send, ticks
from batchhvd.node.sandbox.libc import LIBC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchhvd.node.folder.document import NodeRecord, TaskDocument

NOT_THERE = 69
"""The exit code if the node does not run (any more): EX_UNAVAILABLE of sysexits.h."""
NOT_YET = 75
"""The exit code before the node has begun, and while its preparation runs: EX_TEMPFAIL of sysexits.h."""

MEASURE = "--measure"
"""In the place of a program: measures what the node's ranks use."""

_KEPT = ("TERM", "LANG", "LANGUAGE", "TZ", "COLORTERM", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")  # of who enters
_PATIENCE = 2.0  # seconds from the hang-up to the kill
_PASSED_ON = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends them to the program itself


class CannotEnterError(Exception):
    """A node cannot be entered; the message says why.

    Attributes:
        code: the exit code that says so.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def enter(folder: Path, index: int, words: Sequence[str]) -> int:
    """Runs a program in a node and returns its exit code; 128 + n after signal n, as a shell has it.

    Args:
        folder: the task's folder.
        index: the node's number, from 0.
        words: the program and its arguments; or ``--measure`` and the seconds between two looks, see
            ``batchhvd.node.measure``.
    """
    try:
        if words[:1] == [MEASURE]:
            return _measure(folder, index, float(words[1]))
        task, record = _running(folder, index)
        runner = _opened(record)
        place = TaskPlace(task, folder, index, record["host"] == "127.0.0.1")
        own = _own()
        _take_environment(record["pid"] or 0)
        box = task.get("container")
        outer = _enter_image(place, box["engine"]) if box else _see(place, record)
    except CannotEnterError as error:
        print(f"batchhvd: {error}", file=sys.stderr)
        return error.code
    if outer:
        return _accompany(outer)
    return _run(words, place.variables() | own, runner)


def alone(directory: Path, words: Sequence[str]) -> int:
    """Does the same on a node without a task: the program sees this machine, and the variables of who enters.

    Args:
        directory: its working directory.
        words: the program and its arguments.
    """
    os.chdir(directory)
    path = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', os.defpath)}"  # as jobs have it
    return _run(words, {**os.environ, "PATH": path}, None)


def _shell_of_image(words: Sequence[str]) -> list[str]:
    """Returns the words with the shell that an image has, where the machine's is bash."""
    plain = words[0] == "/bin/bash" and not os.path.exists(words[0])
    return ["/bin/sh" if plain else words[0], *words[1:]]


def _run(words: Sequence[str], variables: dict[str, str], runner: int | None) -> int:
    die_with_parent(os.getppid(), signal.SIGHUP)
    adopt_orphans()
    return _attend(_started(_shell_of_image(words), variables), runner)


def _measure(folder: Path, index: int, seconds: float) -> int:
    task, record = _recorded(folder, index)
    container = task.get("container")
    if container and container["engine"] != "apptainer":  # its processes are no children of the node's
        how = f"{container['engine']} stats {container_name(folder, index)}"
        raise CannotEnterError(
            f"the job runs in a container image; on its machine, `{how}` shows what it uses", NOT_THERE
        )
    from batchhvd.node.measure import measure

    return measure(folder, index, seconds, _opened(record))


def _recorded(folder: Path, index: int) -> tuple[TaskDocument, NodeRecord]:
    try:
        task, record = read_task(folder), read_node(folder, index)
    except DamagedRecordError as error:
        raise CannotEnterError(str(error), NOT_THERE) from error
    if task is not None and record is None:
        raise CannotEnterError("the node has not begun yet; try again in a moment", NOT_YET)
    if task is None or record is None or has_ended(record) or not record["pid"]:
        raise CannotEnterError("the node runs no task (any more)", NOT_THERE)
    return task, record


def _running(folder: Path, index: int) -> tuple[TaskDocument, NodeRecord]:
    task, record = _recorded(folder, index)
    # Whoever came while the preparation runs would write into a layer that later jobs use too.
    if record["state"] == NodeState.PREPARING and task["preparation"] is not None:
        raise CannotEnterError("the node's preparation still runs; try again when it has ended", NOT_YET)
    return task, record


def _opened(record: NodeRecord) -> int:
    """Returns a descriptor of the node's runner, which can be read from when the runner has ended."""
    pid = record["pid"] or 0
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        raise CannotEnterError(f"the node's runner {pid} is not here: {error.strerror}", NOT_THERE) from error
    if ticks(pid) != record.get("ticks"):
        raise CannotEnterError("the node's runner is gone", NOT_THERE)
    return descriptor


def _own() -> dict[str, str]:
    """Returns what describes the terminal of who enters."""
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")}


def _take_environment(runner: int) -> None:
    """Takes the environment of the node's runner."""
    os.environ.clear()
    for entry in Path(f"/proc/{runner}/environ").read_bytes().split(b"\0"):
        name, mark, value = entry.partition(b"=")
        if mark:
            os.environb[name] = value


def _see(place: TaskPlace, record: NodeRecord) -> int:
    """Sees the files that the ranks see: through the runner's mounts, and in its view if a preparation has made one.

    Returns 0: the program is this process's child.
    """
    theirs = f"/proc/{record['pid']}/ns/mnt"
    try:
        if os.stat(theirs).st_ino != os.stat("/proc/self/ns/mnt").st_ino:
            _join(os.open(theirs, os.O_RDONLY | os.O_CLOEXEC))
        preparation = record["preparation"]
        if preparation is not None and preparation["where"] == PreparationPlace.OVERLAY:
            os.chroot(place.folder / f"view-{place.index}" / "root")
        os.chdir(place.temporary)
    except OSError as error:
        raise CannotEnterError(f"the node's files cannot be seen: {error}", NOT_THERE) from error
    return 0


def _enter_image(place: TaskPlace, program: str) -> int:
    """Goes on as a child of this process in the container of the node, with the variables of its image.

    Returns the child's number in this process, and 0 in the child.
    """
    engine, name = ContainerEngine(program), container_name(place.folder, place.index)
    if why := inside.why_closed(engine.name):
        how = (
            f"{engine.name} exec -it {name} sh" if engine.name != "apptainer" else f"apptainer shell instance://{name}"
        )
        raise CannotEnterError(f"the job runs in a container image: {why}; `{how}` does, on its machine", NOT_THERE)
    first = inside.first_process(engine, name)
    if not first:
        raise CannotEnterError(f"{engine.name} has no running container {name}: try again in a moment", NOT_YET)
    try:
        place.base = inside.variables(first)
        for descriptor in inside.opened(first):
            _join(descriptor)
        child = os.fork()  # only a child is in the container's own numbering of processes
        if not child:
            os.chdir(place.temporary)
        return child
    except OSError as error:
        raise CannotEnterError(f"the container {name} cannot be entered: {error}", NOT_THERE) from error


def _accompany(child: int) -> int:
    """Passes signals on to the child in the container, and returns its exit code."""
    die_with_parent(os.getppid(), signal.SIGHUP)
    with_terminal = os.isatty(0)
    for number in (*_PASSED_ON, *_OF_TERMINAL):
        heeds = number in _PASSED_ON or not with_terminal
        signal.signal(number, (lambda received, _: os.kill(child, received)) if heeds else lambda *_: None)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def _join(descriptor: int) -> None:
    if LIBC.setns(descriptor, 0) != 0:
        raise PermissionError("only root can enter the view of a preparation, or a container")
    os.close(descriptor)


def _started(words: Sequence[str], variables: dict[str, str]) -> int:
    """Starts the program and returns its process id."""
    child = os.fork()
    if child:
        return child
    try:
        os.execvpe(words[0], list(words), variables)
    except OSError as error:
        print(f"batchhvd: {words[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _attend(child: int, runner: int | None) -> int:
    """Waits for the program's end or the node's, ends what is left, and returns the program's exit code."""
    _pass_signals_on()
    program, poll = os.pidfd_open(child), select.poll()
    for descriptor in (program, runner):
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
    if program not in dict(poll.poll()):
        print("\r\nbatchhvd: the node has ended, and this with it\r", file=sys.stderr, flush=True)
        send(descendants(os.getpid()), signal.SIGHUP)
        send(descendants(os.getpid()), signal.SIGCONT)
        _wait(program, _PATIENCE)
        send([child], signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    end_all(os.getpid())
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _wait(descriptor: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not select.select([descriptor], [], [], 0.05)[0] and time.monotonic() < deadline:
        pass


def _pass_signals_on() -> None:
    """Passes signals on to what was started; those that a terminal sends reach it anyway."""
    with_terminal = os.isatty(0)
    for number in (*_PASSED_ON, *_OF_TERMINAL):
        heeds = number in _PASSED_ON or not with_terminal
        signal.signal(number, _passing if heeds else lambda *_: None)


def _passing(number: int, _: object) -> None:
    if number == signal.SIGHUP:  # whoever entered is gone; what takes no notice of that ends too
        signal.signal(signal.SIGALRM, lambda *_: end_all(os.getpid()))
        signal.setitimer(signal.ITIMER_REAL, 2 * _PATIENCE)
    with contextlib.suppress(OSError):
        send(descendants(os.getpid()), number)
