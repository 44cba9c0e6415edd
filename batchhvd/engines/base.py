"""The interface between the service and what runs its jobs.

An engine places one *node runner* (``batchhvd.node``) on each node of a task and reports how it went. What happens on a
node is up to the runner, and is the same with every engine.

Every node can read and write the task's folder. It is all that an engine and the runners share:

    task.json          the task, mode 0600 (it contains the secrets)
    node-<i>.json      the state of node i, replaced atomically by its runner
    rendezvous.json    the address at which node 0 serves Horovod's rendezvous
    stop.json          the first failure, or a cancellation; whoever creates it first wins, and every runner watches
                       for it and ends its ranks
    mounts/            the job's mount root: one link per share
    node-<digest>.pyz  the node runner, as built by ``batchhvd.node.archive``

``batchhvd.node.folder.document`` describes the JSON files.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from attrs import asdict, field, frozen

from batchhvd.errors import EngineError
from batchhvd.node.folder.records import write_json
from batchhvd.node.folder.state import Launch, PreparationPlace, StallAction, StopReason, Word

__all__ = [
    "ENDED",
    "Engine",
    "Launch",
    "PreparationPlace",
    "StallAction",
    "Status",
    "StopReason",
    "Task",
    "TaskState",
    "export",
    "load",
]


class TaskState(Word):
    """The state of a task, in the order in which states follow each other; the last four are final."""

    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


ENDED = frozenset({TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED, TaskState.LOST})


@frozen(kw_only=True)
class Task:
    """Everything that is needed to run one job; frozen, and the same for every engine.

    Attributes:
        name: a readable name for the engine's own listing (letters, digits, ``-_.``).
        folder: absolute path of the task's folder, shared by all nodes.
        nodes: the nodes' names as the logs show them, one per node, in the order of their indices.
        ranks: how many ranks each node runs; as long as ``nodes``.
        launch: a ``Launch``: ``"horovod"``, ``"pytorch"`` and ``"tensorflow"`` start each rank with that framework's
            variables, ``"peers"`` with its index only, ``"mpi"`` leaves the placement to an MPI launcher, ``"single"``
            runs the command once, on node 0.
        command: the shell command line of one rank; the node expands its variables.
        roles: what each rank is, for TensorFlow: ``"chief"``, ``"worker"`` or ``"ps"``, a parameter server, which is
            ended when all others have ended well.
        commands: the command line of each role.
        script: a file that must exist when the ranks start, or ""; the node expands its variables.
        preparation: a shell command line that runs once on each node before the ranks, or None.
        prepare: a ``PreparationPlace``, ``"overlay"``, ``"host"`` or ``"skip"``: where the preparation may run.
        layers: absolute path of a directory on the node's own disk where prepared layers are kept from job to job,
            or "" for the task's folder.
        environment: variables of every process, in the order in which they are expanded: a value may refer to the
            variables before it, the node's own ones, and those of the process that started the runner.
        literal: the names of variables of ``environment`` whose values are never expanded.
        secrets: variables whose values are never shown and never expanded.
        logs: the directory (absolute) of stdout.txt, stderr.txt and the nodes' logs.
        notices: lines at the top of each execution log.
        wall_seconds: the job's time limit in seconds, or None.
        stall_seconds: how long all ranks of a node may neither write nor compute before the node examines them, or
            None to never do so.
        stall_action: a ``StallAction``: ``"warn"`` writes their stacks into the execution log, ``"stop"`` ends the task
            after that.
        container: the image in which the node's processes run, or None for the node itself: ``engine`` (a command of
            ``batchhvd.node.container.engine``), ``image`` (a name, ``oci-archive:PATH`` or ``docker-archive:PATH``; the
            node expands its variables), ``server``, ``username`` and ``password`` of its registry or "", and ``shm``,
            the size of ``/dev/shm`` or "".
        setup: whether it sets up a node of a cluster: its logs have other names then (``node/log_names.py``).
        grace: seconds between SIGTERM and SIGKILL when the ranks are ended, or None for the node runner's own choice.
        notice: the same, if the batch system takes the nodes away for another job; None for ``grace``.
        signalled: whether the batch system, when it ends the task, sends SIGTERM to the ranks too.
        attempt: 1 for the first run, 2 after one requeue, and so on.
        options: the engine's own settings, such as Slurm's partition; an engine rejects those it does not know.
    """

    name: str
    folder: str
    nodes: tuple[str, ...]
    ranks: tuple[int, ...]
    launch: str
    command: str
    roles: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(factory=dict)
    script: str = ""
    preparation: str | None = None
    prepare: str = PreparationPlace.OVERLAY
    layers: str = ""
    environment: Mapping[str, str] = field(factory=dict)
    literal: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(factory=dict, repr=False)
    logs: str
    notices: tuple[str, ...] = ()
    wall_seconds: float | None = None
    stall_seconds: float | None = None
    stall_action: str = StallAction.WARN
    container: Mapping[str, str] | None = field(default=None, repr=False)
    setup: bool = False
    grace: float | None = None
    notice: float | None = None
    signalled: bool = False
    attempt: int = 1
    options: Mapping[str, str] = field(factory=dict)

    @property
    def size(self) -> int:
        """The total number of ranks."""
        return sum(self.ranks)

    def write(self, *, synced: bool = True) -> Path:
        """Writes ``task.json`` into the folder, readable by its owner only, and returns its path.

        Args:
            synced: whether it must be whole after a power cut; False if the caller sees to that.
        """
        path = Path(self.folder) / "task.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(self), mode=0o600, synced=synced)
        return path

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Task:
        """Returns the task that ``write`` left in a folder."""
        document = json.loads((Path(folder) / "task.json").read_text(encoding="utf-8"))
        lists = {
            name: tuple(document[name])
            for name in ("nodes", "ranks", "roles", "literal", "notices")
            if name in document
        }
        return cls(**{**document, **lists})


@frozen(kw_only=True)
class Status:
    """The state of a task, and how it ended.

    Attributes:
        state: a ``TaskState``, or the same word.
        exit_code: 0, the first failing rank's code, 128 + n for signal n, or None while nothing has ended.
        reason: why it failed, a ``StopReason`` or the same word; or why it is still waiting, in the engine's words; ""
            otherwise.
        error: the same as a sentence, or "".
        advice: what to do while it waits, in the engine's words, or "".
        node: the name of the node that failed first.
        rank: the first failing rank, or None.
        tail: the last lines of the first failing rank (or of the preparation).
        started, ended: seconds since 1970, or None.
        attempt: how often the engine itself has started it (Slurm requeues), from 1.
    """

    state: str
    exit_code: int | None = None
    reason: str = ""
    error: str = ""
    advice: str = ""
    node: str = ""
    rank: int | None = None
    tail: tuple[str, ...] = ()
    started: float | None = None
    ended: float | None = None
    attempt: int = 1


class Engine(Protocol):
    """What the service requires of an engine; an instance keeps nothing that the folder does not contain.

    An engine whose nodes are machines that can break may also have ``node_states() -> Mapping[str, str]``: the names of
    those that currently accept no tasks, each with its state and the reason, in the engine's words. An engine that
    hands tasks to somebody else may also have ``find(folder: str) -> str | None``: the handle of a task whose handle
    was not stored, or None if nothing of it was ever accepted.
    An engine that takes many tasks in one go has ``submit_many(tasks: Sequence[Task]) -> Mapping[str, str |
    EngineError]``: the handle of each by its folder, or the error that ``submit`` would have raised.
    An engine whose nodes can be entered has ``entrance(handle: str, index: int, *, terminal: bool = False) ->
    list[str]``: the words that, put before a command line, run it in a node of a run, with the files and the variables
    of its ranks (``batchhvd.node.enter``); ``terminal`` says whether the command's input and output are a terminal.
    """

    def nodes(self) -> int:
        """Returns the largest number of nodes that it can provide."""

    def preview(self, task: Task) -> str:
        """Returns what ``submit`` would run, as text; pure."""

    def submit(self, task: Task) -> str:
        """Starts a task and returns at once; the string alone identifies the run.

        The caller may have been killed before it could store the string: submitting the same folder again returns the
        existing run instead of starting another.

        Raises:
            EngineBusyError: it cannot take the task at the moment, or has not answered yet; submit it again later.
            EngineError: the engine cannot do what the task requires, or its command failed.
        """

    def status(self, handles: Sequence[str]) -> Mapping[str, Status]:
        """Returns the status of all runs at once; never raises for a run that has ended or is unknown (``lost``)."""

    def cancel(self, handle: str) -> None:
        """Ends a run: gracefully, then by force; may be repeated, even after the run has ended."""


_ENGINES = {
    "processes": "batchhvd.engines.processes:Processes",
    "slurm": "batchhvd.engines.slurm:Slurm",
}


def load(name: str, **settings: object) -> Engine:
    """Returns an engine by its name.

    Args:
        name: the engine's name, or ``"package.module:Class"`` for one of your own.
        settings: what its constructor takes, such as ``bin="/opt/slurm/bin"``; a command line gives strings.

    Raises:
        EngineError: there is no such engine, and the message lists the available ones; or it has no such setting.
        EngineMissingError: its programs are not installed.
    """
    module, _, attribute = _ENGINES.get(name, name).partition(":")
    if not attribute:
        own = "or package.module:Class for your own"
        raise EngineError(f"there is no engine {name!r}; choose {', '.join(_ENGINES)}, {own}", engine=name)
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ModuleNotFoundError, AttributeError) as error:
        raise EngineError(f"the engine {name!r} cannot be loaded: {error}", engine=name) from error
    try:
        inspect.signature(kind).bind(**settings)
    except TypeError as error:
        raise EngineError(f"the {name} engine does not accept these settings: {error}", engine=name) from None
    engine: Engine = kind(**settings)
    return engine


def export(format: str, task: Task, notes: Sequence[str] = ()) -> str:
    """Returns a task as a script that runs without batchhvd, except for the node runner, to which it has the path.

    Args:
        format: ``"slurm"`` for a batch script, ``"horovodrun"`` for a script of the shell around Horovod's launcher.
        task: the task; the values of its secrets are left out.
        notes: what has to be done by hand, one sentence each; the script lists them together with its own.

    Raises:
        EngineError: there is no such format, or it cannot express the task at all.
    """
    made: str = importlib.import_module("batchhvd.engines.export").export(format, task, notes)
    return made
