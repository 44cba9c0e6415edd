"""How a task stands, read from what its node runners wrote into its folder; the same for every engine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from batchhvd.engines.base import Status

Document = dict[str, Any]


def read(path: Path) -> Any:
    """Returns a file's document, or None where there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def nodes(folder: Path, count: int) -> list[Document | None]:
    """Returns the record of each node, None for those that have not begun."""
    return [read(folder / f"node-{index}.json") for index in range(count)]


def stop(folder: Path) -> Document | None:
    """Returns why a task was stopped, or None where it was not."""
    found: Document | None = read(folder / "stop.json")
    return found


def declare(folder: Path, reason: str, *, node: str = "", error: str = "") -> bool:
    """Makes ``stop.json`` and says whether this was the first to do so; every runner ends its ranks on seeing it."""
    document: Document = {"reason": reason, "node": node, "rank": None, "exit_code": None, "error": error, "tail": []}
    scratch = folder / f".stop.{os.getpid()}"
    scratch.write_text(json.dumps(document), encoding="utf-8")
    try:
        os.link(scratch, folder / "stop.json")
    except FileExistsError:
        return False
    finally:
        scratch.unlink()
    return True


def status(stop: Mapping[str, Any] | None, records: Sequence[Document | None], *, attempt: int = 1) -> Status:
    """Returns how a task stands, from its stop file and the records of its nodes.

    A node that is gone without having ended must have been given a record that says so: here, None and a record whose
    state is not ``ended`` mean that the node may still begin or go on.
    """
    begun = [record for record in records if record is not None]
    started = min((record["started"] for record in begun), default=None)
    if len(begun) < len(records) or any(record["state"] != "ended" for record in begun):
        return Status(state=_moving(begun), started=started, attempt=attempt)
    ended = max(record["ended"] for record in begun)
    if stop is None or not any(record["reason"] for record in begun):  # it came when all nodes had ended already
        return Status(state="succeeded", exit_code=0, started=started, ended=ended, attempt=attempt)
    return Status(
        state="cancelled" if stop["reason"] == "cancelled" else "failed",
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


def _moving(begun: Sequence[Document]) -> str:
    states = {record["state"] for record in begun}
    if not states:
        return "queued"
    return "preparing" if "preparing" in states and not states & {"running", "ended"} else "running"
