"""The status of a task, read from what its node runners wrote into its folder; the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from batchhvd.engines.base import Status, TaskState
from batchhvd.engines.unchanged import Unchanged
from batchhvd.node.folder.document import NodeRecord, StopRecord
from batchhvd.node.folder.records import declare, has_ended, read_node, read_stop
from batchhvd.node.folder.state import NodeState, StopReason
from batchhvd.node.guard import complete

__all__ = ["complete", "declare", "nodes", "status", "stop"]


def nodes(folder: Path, count: int) -> list[NodeRecord | None]:
    """Returns the record of each node, None for those that have not begun; nobody may change them."""
    return [_NODES((folder, index)) for index in range(count)]


def stop(folder: Path) -> StopRecord | None:
    """Returns why a task was stopped, None if it was not; nobody may change it."""
    return _STOPS(folder)


def _node(key: tuple[Path, int]) -> NodeRecord | None:
    return read_node(*key)


_NODES = Unchanged(lambda key: f"{key[0]}/node-{key[1]}.json", _node)
_STOPS = Unchanged(lambda folder: f"{folder}/stop.json", read_stop)


def status(stop: StopRecord | None, records: Sequence[NodeRecord | None], *, attempt: int = 1) -> Status:
    """Returns the status of a task, from its stop file and the records of its nodes.

    A node that vanished before it ended must first get a record that says so (``complete``): None, or a record whose
    state is not ``ended``, means that the node may still begin or continue.

    Args:
        stop: why the task was stopped, or None.
        records: the record of each node, None for those that have not begun.
        attempt: how often the engine itself has started the task, from 1.
    """
    begun = [record for record in records if record is not None]
    started = min((record["started"] for record in begun), default=None)
    if len(begun) < len(records) or not all(map(has_ended, begun)):
        return Status(state=_moving(begun), started=started, attempt=attempt)
    ended = max(record["ended"] or 0.0 for record in begun)
    if stop is None or not any(record["reason"] for record in begun):  # it was created after all nodes had ended
        return Status(state=TaskState.SUCCEEDED, exit_code=0, started=started, ended=ended, attempt=attempt)
    return Status(
        state=TaskState.CANCELLED if stop["reason"] == StopReason.CANCELLED else TaskState.FAILED,
        exit_code=stop["exit_code"],
        reason=stop["reason"],
        error=stop["error"],
        node=stop["node"],
        rank=stop["rank"],
        tail=tuple(stop.get("tail", ())),
        started=started,
        ended=ended,
        attempt=attempt,
    )


def _moving(begun: Sequence[NodeRecord]) -> TaskState:
    states = {record["state"] for record in begun}
    if not states:
        return TaskState.QUEUED
    prepares = NodeState.PREPARING in states and not states & {NodeState.RUNNING, NodeState.ENDED}
    return TaskState.PREPARING if prepares else TaskState.RUNNING
