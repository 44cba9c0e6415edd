"""The words that a task and its records use. In the code they are members, on disk plain words."""

from __future__ import annotations

from enum import Enum


class Word(str, Enum):
    """A text with a name in the code; equal to the plain text, and written as it."""

    __str__ = str.__str__


class NodeState(Word):
    """How far a node is."""

    PREPARING = "preparing"
    RUNNING = "running"
    ENDED = "ended"


class StopReason(Word):
    """Why a task was stopped before all ranks had ended well."""

    PREPARATION = "preparation"
    SCRIPT = "script"
    RANK = "rank"
    MEMORY = "memory"
    TIME = "time"
    CANCELLED = "cancelled"
    NODE = "node"
    ENGINE = "engine"


class Launch(Word):
    """How the ranks of a task are started."""

    HOROVOD = "horovod"
    MPI = "mpi"
    SINGLE = "single"


class PreparationPlace(Word):
    """Where a preparation runs."""

    OVERLAY = "overlay"
    HOST = "host"
    SKIP = "skip"


class StallAction(Word):
    """What is done when all ranks of a node stall."""

    WARN = "warn"
    STOP = "stop"
