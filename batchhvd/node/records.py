"""Reads and writes the JSON files in a task's folder, which are all that the nodes and the engine share."""

from __future__ import annotations

import json
import os

from batchhvd.node.state import NodeState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any, TypeGuard

    from batchhvd.node.document import MeetingRecord, NodeRecord, StopRecord, TaskDocument


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """Writes a document to a file; a reader sees the old content or the new one, never a part."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(document), encoding="utf-8")
    scratch.replace(path)


def read_task(folder: Path) -> TaskDocument | None:
    """Returns the task of a folder, or None if the folder does not contain one (any more)."""
    task: TaskDocument | None = read_document(folder / "task.json")
    return task


def read_node(folder: Path, index: int) -> NodeRecord | None:
    """Returns the record of a node, or None if the node has not begun."""
    record: NodeRecord | None = read_document(node_path(folder, index))
    return record


def read_stop(folder: Path) -> StopRecord | None:
    """Returns why a task was stopped, or None if it was not."""
    stop: StopRecord | None = read_document(folder / "stop.json")
    return stop


def read_meeting(folder: Path) -> MeetingRecord | None:
    """Returns where the ranks meet, or None if node 0 has not announced it yet."""
    meeting: MeetingRecord | None = read_document(folder / "rendezvous.json")
    return meeting


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
    words: StopRecord = {
        "reason": reason,
        "node": node,
        "rank": rank,
        "exit_code": exit_code,
        "error": error,
        "tail": list(tail),
    }
    if stacks:
        words["stacks"] = True
    scratch = folder / f".stop.{os.getpid()}"
    scratch.write_text(json.dumps(words), encoding="utf-8")
    try:
        os.link(scratch, folder / "stop.json")  # fails if it exists, and nobody ever sees a part of it
    except FileExistsError:
        return False
    finally:
        scratch.unlink()
    return True


def read_document(path: Path) -> Any:
    """Returns the object in a file, or None if there is no file.

    Raises:
        ValueError: the file does not hold a JSON object: a job wrote to it, or a power cut left a part of it.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it is not a JSON object")
    return found
