"""Nodes are process groups on this machine: one detached runner for each, which outlives the service.

The handle of a run is its task folder. A runner is known by its process id together with the time at which the process
started, so that another process that was given the same number is not mistaken for it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from attrs import frozen

from batchhvd.engines import records
from batchhvd.engines.base import Status, Task
from batchhvd.errors import EngineError, EngineMissing
from batchhvd.node import node


@frozen
class Processes:
    """The engine that needs nothing but this machine.

    Attributes:
        limit: how many nodes it gives at most; nodes are processes, so any machine has many.
        patience: seconds after which a runner that does not heed a cancellation is killed.
    """

    limit: int = 100
    patience: float = 8.0

    def nodes(self) -> int:
        """Returns how many nodes it can give at most."""
        return self.limit

    def preview(self, task: Task) -> str:
        """Returns the command line that starts the runners of all nodes."""
        return shlex.join(_command(task))

    def submit(self, task: Task) -> str:
        """Starts the runners of a task and returns its folder, the handle.

        Raises:
            EngineError: the task has options, which this engine does not know, or needs MPI, which is not installed.
        """
        _check(task)
        folder = Path(task.folder)
        if not (folder / "processes.json").exists():
            task.write()
            pid = _start(task)
            node.write_json(folder / "processes.json", {"pid": pid, "ticks": node.ticks(pid), "nodes": len(task.nodes)})
        return task.folder

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Returns how each run stands; a run whose folder is gone is ``lost``.

        A run has ended when none of its processes is left.
        """
        return {handle: self._status(Path(handle)) for handle in handles}

    def cancel(self, handle: str) -> None:
        """Tells the runners to end; kills those that did not within ``patience`` of the first call."""
        folder = Path(handle)
        if not (folder / "processes.json").exists():
            return
        records.declare(folder, "cancelled", error="the job was terminated")
        if time.time() - (folder / "stop.json").stat().st_mtime > self.patience:
            for index in range(_started(folder)["nodes"]):
                _sweep(folder, index)

    def _status(self, folder: Path) -> Status:
        started = _started(folder)
        if not started["nodes"]:
            return Status(state="lost", reason="node", error=f"nothing was started from {folder}")
        _reap(started["pid"])
        found = records.nodes(folder, started["nodes"])
        runners = _runners(folder, found)
        for index, record in enumerate(found):
            alive, ended = _alive(runners[index]), record is not None and record["state"] == "ended"
            if not alive and not ended:
                found[index] = _lost(folder, index)
            elif alive and record is not None and ended:
                found[index] = self._leaving(record, runners[index])
        return records.status(records.stop(folder), found, attempt=1)

    def _leaving(self, record: records.Document, runner: Mapping[str, int]) -> records.Document:
        """Returns the record of a node whose guard is about to go; one that does not go is killed."""
        if time.time() - record["ended"] > self.patience:
            node.send([runner["pid"]], signal.SIGKILL)
        return {**record, "state": "running"}


def _check(task: Task) -> None:
    if task.options:
        raise EngineError(f"the processes engine has no option {sorted(task.options)[0]!r}", engine="processes")
    # A preparation may install it where only the job sees it.
    if task.launch == "mpi" and task.preparation is None and which("mpirun") is None:
        raise EngineMissing(
            "a customMpi job needs Open MPI's mpirun, which is not installed: apt-get install openmpi-bin",
            engine="processes",
            command="mpirun",
        )


def _command(task: Task) -> list[str]:
    indices = [str(index) for index in range(len(task.nodes))]
    return [sys.executable, "-I", "-S", node.__file__, task.folder, *indices, "--loopback"]


def _start(task: Task) -> int:
    log = str(Path(task.folder) / "runners.log")
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    command = _command(task)
    return os.posix_spawn(command[0], command, os.environ, file_actions=actions, setsid=True)


def _runners(folder: Path, found: Sequence[records.Document | None]) -> list[Mapping[str, int]]:
    """Returns process id and start time of what must live for each node: its guard, before that what starts it."""
    started = _started(folder)
    return [record["guard"] if record and "guard" in record else started for record in found]


def _started(folder: Path) -> dict[str, int]:
    """Returns process id and start time of what started a task's nodes, and how many they are; none if nothing did."""
    found: dict[str, int] = records.read(folder / "processes.json") or {"pid": 0, "ticks": 0, "nodes": 0}
    return found


def _alive(runner: Mapping[str, int]) -> bool:
    return runner["ticks"] is not None and node.ticks(runner["pid"]) == runner["ticks"]


def _lost(folder: Path, index: int) -> records.Document:
    """Completes the record of a node whose guard and runner are both gone, and ends what they left behind."""
    record: records.Document | None = records.read(folder / f"node-{index}.json")
    if record is not None and record["state"] == "ended":  # it ended between two looks
        return record
    _sweep(folder, index)
    node.complete(folder, index, -signal.SIGKILL)
    completed: records.Document = records.read(folder / f"node-{index}.json")
    return completed


def _sweep(folder: Path, index: int) -> None:
    """Kills all processes of a node and waits until they are gone, for two seconds at most."""
    deadline = time.monotonic() + 2
    while (found := _belonging(folder, index)) and time.monotonic() < deadline:
        node.send(found, signal.SIGKILL)
        time.sleep(0.005)  # the kernel needs a moment to let them go


def _belonging(folder: Path, index: int) -> list[int]:
    """Returns the living processes of a node: guard and runner, and all that carry its name in their environment."""
    record = records.read(folder / f"node-{index}.json") or {}
    own = [record["guard"], record] if "guard" in record else []
    found = [entry["pid"] for entry in own if _alive(entry)]
    mark = f"BATCHHVD_NODE={folder}:{index}".encode()
    for name in os.listdir("/proc") if node.LINUX else ():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if name.isdigit() and mark in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return found


def _reap(pid: int) -> None:
    """Takes down the end of a process, where it was this one that started it."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
