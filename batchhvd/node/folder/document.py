"""The JSON files in a task's folder. Only type checkers import this module: importing ``typing`` takes 3 ms."""

from __future__ import annotations

from typing import TypedDict


class ContainerDocument(TypedDict):
    """The container of a task; ``batchhvd.engines.base.Task`` describes its fields."""

    engine: str
    image: str
    server: str
    username: str
    password: str
    shm: str


class NewerTask(TypedDict, total=False):
    """What ``task.json`` contains only if a service of today wrote it."""

    literal: list[str]
    grace: float | None
    notice: float | None
    signalled: bool
    roles: list[str]
    commands: dict[str, str]
    container: ContainerDocument | None
    setup: bool


class TaskDocument(NewerTask):
    """``task.json``: the task; its fields are those of ``batchhvd.engines.base.Task``."""

    name: str
    folder: str
    nodes: list[str]
    ranks: list[int]
    launch: str
    command: str
    script: str
    preparation: str | None
    prepare: str
    layers: str
    environment: dict[str, str]
    secrets: dict[str, str]
    logs: str
    notices: list[str]
    wall_seconds: float | None
    stall_seconds: float | None
    stall_action: str
    attempt: int
    options: dict[str, str]


class ProcessRecord(TypedDict):
    """A process and when it started, so that another process with the same id is not mistaken for it."""

    pid: int
    ticks: int | None


class PreparationRecord(TypedDict):
    """How a node's preparation ended, and where it ran."""

    exit: int
    seconds: float
    where: str


class RankRecord(TypedDict):
    """The state of a rank; rank -1 is the preparation."""

    rank: int
    pid: int
    started: float
    ended: float | None
    exit: int | None
    signal: int | None
    memory: bool
    tail: list[str]


class BegunRecord(TypedDict, total=False):
    """What ``node-<i>.json`` contains only if the node's runner itself created it."""

    ticks: int | None
    guard: ProcessRecord
    ports: list[int]


class NodeRecord(BegunRecord):
    """``node-<i>.json``: the state of node i, and the reason if it failed."""

    index: int
    node: str
    host: str
    pid: int | None
    started: float
    ended: float | None
    state: str
    preparation: PreparationRecord | None
    ranks: list[RankRecord]
    reason: str
    error: str


class StalledStop(TypedDict, total=False):
    """What ``stop.json`` contains only after a stall: all nodes then log what their ranks are doing."""

    stacks: bool


class StopRecord(StalledStop):
    """``stop.json``: the first failure, or a cancellation."""

    reason: str
    node: str
    rank: int | None
    exit_code: int | None
    error: str
    tail: list[str]


class NewerMeeting(TypedDict, total=False):
    """What ``rendezvous.json`` contains only for PyTorch: the port that is kept free for its first rank."""

    master: int


class MeetingRecord(NewerMeeting):
    """``rendezvous.json``: the addresses at which node 0 serves Horovod's rendezvous, and the name of that server."""

    addresses: list[str]
    port: int
    name: str
