"""Starts nodes of a task on this machine; each is two processes, a guard and its child, the runner."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

from batchhvd.node.folder.durable import DamagedRecordError
from batchhvd.node.folder.records import has_ended, read_node
from batchhvd.node.guard import guard
from batchhvd.node.node import Node
from batchhvd.node.processes import adopt_orphans, die_with_parent


def main(arguments: list[str]) -> int:
    """Runs the given nodes and returns the exit code: that of a single node, or 0 when several have begun.

    Args:
        arguments: FOLDER [INDEX ...] [--loopback], FOLDER INDEX --enter WORD..., or FOLDER --alone WORD...; LAYERS
            --why-not prints why no preparation can run in a view here; see ``batchhvd.node``.
    """
    if arguments[1:] == ["--why-not"]:
        from batchhvd.node.preparation import why_not

        print(why_not(Path(arguments[0])))
        return 0
    if arguments[2:3] == ["--enter"]:
        from batchhvd.node.enter import enter  # nodes themselves do not need it

        return enter(Path(arguments[0]).absolute(), int(arguments[1]), arguments[3:])
    if arguments[1:2] == ["--alone"]:
        from batchhvd.node.enter import alone

        return alone(Path(arguments[0]), arguments[2:])
    words = [word for word in arguments if not word.startswith("--")]
    folder, loopback = Path(words[0]).absolute(), "--loopback" in arguments
    indices = [int(word) for word in words[1:] or [os.environ["SLURM_NODEID"]]]
    if len(indices) == 1:
        return run_node(folder, indices[0], loopback)
    return scatter(folder, indices, loopback)


def scatter(folder: Path, indices: list[int], loopback: bool) -> int:
    """Starts several nodes, each in a session of its own, and returns when each has written its first record."""
    begun, begins = os.pipe()
    for index in indices:
        if os.fork() == 0:
            os.setsid()
            os.close(begun)
            os._exit(run_node(folder, index, loopback, begins))
    os.close(begins)
    return len(os.read(begun, 1))  # returns when no node has the pipe open any more


def run_node(folder: Path, index: int, loopback: bool, begins: int | None = None) -> int:
    """Splits into guard and runner and returns the node's exit code.

    Args:
        folder: the task's folder.
        index: the node's number, from 0.
        loopback: whether all nodes are this machine.
        begins: the end of a pipe to close when the first record is written, or None.
    """
    if not _begins(folder, index):
        return 0
    own = os.getpid()
    adopt_orphans()
    runner = os.fork()
    if runner == 0:
        die_with_parent(own, signal.SIGTERM)
        adopt_orphans()
        node = Node(folder, index, loopback, own)
        node.journal.save()
    if begins is not None:
        os.close(begins)
    if runner:
        return guard(folder, index, runner)
    try:
        os._exit(node.run())
    except BaseException:
        sys.excepthook(*sys.exc_info())  # writes the traceback
        os._exit(1)


def _begins(folder: Path, index: int) -> bool:
    """Locks the node for this process, and returns whether it has not been run before."""
    lock = os.open(folder / f".node-{index}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False  # another process runs this node
    try:
        return not has_ended(read_node(folder, index))  # an ended node is not run again
    except DamagedRecordError:
        return False  # it has been run, or somebody wants that to be believed
