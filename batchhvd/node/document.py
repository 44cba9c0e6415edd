"""The shapes of the JSON files in a task's folder. Only type checkers need them: importing ``typing`` takes 3 ms."""

from __future__ import annotations

from typing import TypedDict


class TaskDocument(TypedDict):
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
    """A process, and when it started: another process that was given the same number is not mistaken for it."""

    pid: int
    ticks: int | None


class PreparationRecord(TypedDict):
    """How a node's preparation ended, and where it ran."""

    exit: int
    seconds: float
    where: str


class RankRecord(TypedDict):
    """How a rank (-1: a preparation) stands."""

    rank: int
    pid: int
    started: float
    ended: float | None
    exit: int | None
    signal: int | None
    memory: bool
    tail: list[str]


class BegunRecord(TypedDict, total=False):
    """What ``node-<i>.json`` has only if the node's runner itself made it."""

    ticks: int | None
    guard: ProcessRecord


class NodeRecord(BegunRecord):
    """``node-<i>.json``: how node i stands, and why it did not end well if it did not."""

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
    """What ``stop.json`` has only after a stall: all nodes write their stacks into their logs."""

    stacks: bool


class StopRecord(StalledStop):
    """``stop.json``: the first failure, or a cancellation."""

    reason: str
    node: str
    rank: int | None
    exit_code: int | None
    error: str
    tail: list[str]


class MeetingRecord(TypedDict):
    """``rendezvous.json``: where node 0 serves Horovod's rendezvous, and by which name it is known there."""

    addresses: list[str]
    port: int
    name: str
