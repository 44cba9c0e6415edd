"""Reads and writes the JSON files in a task's folder, which are all that the nodes and the engine share."""

from __future__ import annotations

import json

from batchhvd.node.folder.durable import (
    DamagedRecordError,
    create,
    is_code,
    is_count,
    is_object,
    is_text,
    is_ticks,
    is_time,
    list_of,
    maybe,
    read_record,
    replace,
    table_of,
)
from batchhvd.node.folder.state import NodeState, StopReason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import TypeGuard

    from batchhvd.node.folder.document import MeetingRecord, NodeRecord, StopRecord, TaskDocument


_PROCESS = is_object(pid=is_count, ticks=is_ticks)
_RANK = is_object(
    rank=is_code, pid=is_count, started=is_time, ended=maybe(is_time), exit=is_code, tail=list_of(is_text)
)
_TASK = {
    "nodes": list_of(is_text),
    "ranks": list_of(is_count),
    "environment": table_of(is_text),
    "secrets": table_of(is_text),
    **dict.fromkeys(("launch", "command", "prepare", "logs", "stall_action"), is_text),
    "preparation": maybe(is_text),
    "notices": list_of(is_text),
    "wall_seconds": maybe(is_time),
    "attempt": is_count,
}
_NODE = {
    **dict.fromkeys(("node", "host", "state", "reason", "error"), is_text),
    "pid": maybe(is_count),
    "started": is_time,
    "ended": maybe(is_time),
    "ranks": list_of(_RANK),
}
_STOP = {
    **dict.fromkeys(("reason", "node", "error"), is_text),
    "rank": is_code,
    "exit_code": is_code,
    "tail": list_of(is_text),
}
_MEETING = {"addresses": list_of(is_text), "port": is_count, "name": is_text}


def write_json(
    path: Path, document: Mapping[str, object], *, mode: int = 0o644, lasting: bool = False, synced: bool = True
) -> None:
    """Writes a document to a file; a reader sees the old content or the new one, never a part, even after a power cut.

    Args:
        path: the file.
        document: its new content.
        mode: the permissions of the file.
        lasting: whether the new content must be there after a power cut, and not only one of the two.
        synced: False if neither must be.
    """
    replace(path, json.dumps(document).encode(), mode=mode, lasting=lasting, synced=synced)


def read_task(folder: Path) -> TaskDocument | None:
    """Returns the task of a folder, or None if the folder does not contain one (any more); may be damaged, as below."""
    return read_record(folder / "task.json", _TASK)  # type: ignore[return-value]  # its shape was checked


def read_node(folder: Path, index: int) -> NodeRecord | None:
    """Returns the record of a node, or None if the node has not begun.

    Raises:
        DamagedRecordError: the file does not contain such a record; so with each of these readers.
    """
    path = node_path(folder, index)
    record: NodeRecord | None = read_record(path, _NODE)  # type: ignore[assignment]
    if record is not None and "guard" in record and not (_PROCESS(record["guard"]) and is_ticks(record.get("ticks"))):
        raise DamagedRecordError(path, "the field 'guard' is wrong")
    return record


def read_stop(folder: Path) -> StopRecord | None:
    """Returns why a task was stopped, or None if it was not; a damaged stop file stops the task too."""
    path = folder / "stop.json"
    try:
        return read_record(path, _STOP)  # type: ignore[return-value]
    except DamagedRecordError as error:
        return _stop(StopReason.ENGINE, error=str(error))


def read_meeting(folder: Path) -> MeetingRecord | None:
    """Returns where the ranks meet, or None if node 0 has not announced it yet."""
    return read_record(folder / "rendezvous.json", _MEETING)  # type: ignore[return-value]


def node_path(folder: Path, index: int) -> Path:
    """Returns the path of a node's record."""
    return folder / f"node-{index}.json"


def has_ended(record: NodeRecord | None) -> TypeGuard[NodeRecord]:
    """Whether a node's record says that the node has ended."""
    return record is not None and record["state"] == NodeState.ENDED


def declare(
    folder: Path,
    reason: str,
    *,
    node: str = "",
    rank: int | None = None,
    exit_code: int | None = None,
    error: str = "",
    tail: Sequence[str] = (),
    stacks: bool = False,
) -> bool:
    """Creates ``stop.json``, which makes every node end its ranks, and returns whether this call was the first.

    If the file exists already, it stays as it is.

    Args:
        folder: the task's folder.
        reason: a ``StopReason``.
        node: the name of the node that failed first.
        rank: the rank that failed first, or None.
        exit_code: as a shell gives it, or None.
        error: the reason as a sentence.
        tail: the last lines of what failed has written.
        stacks: whether all nodes are to log what their ranks are doing.
    """
    words = _stop(reason, node=node, rank=rank, exit_code=exit_code, error=error, tail=tail)
    if stacks:
        words["stacks"] = True
    return create(folder / "stop.json", json.dumps(words).encode())


def _stop(
    reason: str,
    *,
    node: str = "",
    rank: int | None = None,
    exit_code: int | None = None,
    error: str = "",
    tail: Sequence[str] = (),
) -> StopRecord:
    return {
        "reason": reason,
        "node": node,
        "rank": rank,
        "exit_code": exit_code,
        "error": error,
        "tail": list(tail),
    }
