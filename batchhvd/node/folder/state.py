"""The words that tasks and their records use: members of enumerations in the code, plain words on disk."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """A word with a name in the code; it equals the plain word and is written like it."""

    __str__ = str.__str__


class NodeState(Word):
    """The state of a node."""

    PREPARING = "preparing"
    RUNNING = "running"
    ENDED = "ended"


class StopReason(Word):
    """Why a task was stopped before all its ranks had succeeded."""

    PREPARATION = "preparation"
    SCRIPT = "script"
    RANK = "rank"
    MEMORY = "memory"
    TIME = "time"
    CANCELLED = "cancelled"
    NODE = "node"
    ENGINE = "engine"
    IMAGE = "image"
    CONTAINER = "container"


class Launch(Word):
    """How the ranks of a task are started."""

    HOROVOD = "horovod"
    PYTORCH = "pytorch"
    TENSORFLOW = "tensorflow"
    PEERS = "peers"
    MPI = "mpi"
    SINGLE = "single"


class PreparationPlace(Word):
    """Where a preparation runs."""

    OVERLAY = "overlay"
    HOST = "host"
    SKIP = "skip"
    CONTAINER = "container"


class StallAction(Word):
    """What a node does when all its ranks stall."""

    WARN = "warn"
    STOP = "stop"
