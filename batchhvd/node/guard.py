"""The guard of a node: the parent of its runner, which cleans up after a runner that was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from batchhvd.node import log_names
from batchhvd.node.folder.durable import DamagedRecordError
from batchhvd.node.folder.records import declare, has_ended, node_path, read_node, read_task, write_json
from batchhvd.node.folder.state import NodeState, StopReason
from batchhvd.node.output import LogFile
from batchhvd.node.processes import end_all, leave_to_ranks, send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from batchhvd.node.folder.document import NodeRecord


def guard(folder: Path, index: int, runner: int) -> int:
    """Waits for the runner, ends what is left of it, and completes its record if it could not do so itself.

    Args:
        folder: the task's folder.
        index: the node's number.
        runner: the process id of the runner, a child of this process.

    Returns:
        The runner's exit code, as a shell gives it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: send([runner], number))
    leave_to_ranks()
    while True:
        pid, status = os.wait()
        if pid == runner:
            break
    end_all(os.getpid())
    code = os.waitstatus_to_exitcode(status)
    if not (folder / "task.json").exists():
        return 1  # nothing waits for this node any more
    if not _has_ended(folder, index):
        _remove_container(folder, index)
        complete(folder, index, code)
    return code if code >= 0 else 128 - code


def complete(folder: Path, index: int, code: int) -> NodeRecord:
    """Records, in the runner's place, that the node is lost, and stops the task.

    Args:
        folder: the task's folder.
        index: the node's number.
        code: how the runner ended: its exit code, or -n for signal n.

    Returns:
        The record as it was written.

    Raises:
        FileNotFoundError: the folder does not contain a task.
    """
    name, now = _name(folder, index), time.time()
    error = f"the node's runner ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
    _note(folder, index, error)
    declare(folder, StopReason.NODE, node=name, error=error)
    record = _begun(folder, index) or _unbegun(index, name, now)
    record["node"], record["state"], record["ended"] = name, NodeState.ENDED, now
    record["reason"], record["error"] = StopReason.NODE, error
    write_json(node_path(folder, index), record)
    return record


def _remove_container(folder: Path, index: int) -> None:
    if (folder / f"container-{index}").exists():
        from batchhvd.node.contained import remove_left  # hardly ever needed

        with contextlib.suppress(DamagedRecordError, OSError, ValueError):
            remove_left(folder, index)


def _has_ended(folder: Path, index: int) -> bool:
    try:
        return has_ended(read_node(folder, index))
    except DamagedRecordError:
        return False


def _name(folder: Path, index: int) -> str:
    """Returns the name of a node; if the task is damaged, its number.

    Raises:
        FileNotFoundError: the folder does not contain a task.
    """
    with contextlib.suppress(DamagedRecordError, IndexError):
        task = read_task(folder)
        if task is None:
            raise FileNotFoundError(f"{folder} does not contain a task")
        return task["nodes"][index]
    return f"node {index}"


def _note(folder: Path, index: int, error: str) -> None:
    with contextlib.suppress(OSError, DamagedRecordError, IndexError):
        task = read_task(folder)
        if task is not None:
            LogFile(Path(task["logs"]) / log_names.execution(task, index)).write(f"{error}\n".encode())


def _begun(folder: Path, index: int) -> NodeRecord | None:
    """Returns what the runner has recorded, or None if it has not, or something has damaged it since."""
    try:
        return read_node(folder, index)
    except DamagedRecordError:
        return None


def _unbegun(index: int, name: str, now: float) -> NodeRecord:
    """Returns the record of a node whose runner died before it could write one."""
    return {
        "index": index,
        "node": name,
        "host": "",
        "pid": None,
        "started": now,
        "ended": now,
        "state": NodeState.ENDED,
        "preparation": None,
        "ranks": [],
        "reason": "",
        "error": "",
    }
