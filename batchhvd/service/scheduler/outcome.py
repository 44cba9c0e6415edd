"""What a job's documents say about how it ended. Pure."""

from __future__ import annotations

import re
from typing import Any

from batchhvd.engines.base import Status

_CODES = {
    "preparation": "JobPreparationFailed",
    "script": "ScriptNotFound",
    "rank": "RankFailed",
    "memory": "OutOfMemory",
    "time": "WallClockLimit",
    "cancelled": "JobTerminated",
    "node": "NodeLost",
    "engine": "EngineFailed",
}
_HOROVOD = (
    ("HorovodBroken", re.compile(r"\bHorovodBrokenError\b")),
    ("HorovodMissing", re.compile(r"\bHorovodMissingError\b|No module named 'horovod")),
)


def error(status: Status, *, attempt: int, node: str = "", path: str = "") -> dict[str, Any]:
    """Returns the one error of a run that did not end well: code, message, details.

    Args:
        status: how it ended.
        attempt: which attempt it was.
        node: the node to name where the status names none.
        path: the path that was missing, for ``ScriptNotFound``.
    """
    code = _code(status)
    facts = {
        "Rank": status.rank,
        "Node": status.node or node,
        "ExitCode": status.exit_code,
        "Signal": _signal(status),
        "Attempt": attempt,
        "Tail": "\n".join(status.tail),
        "Path": path if status.reason == "script" else "",
    }
    details = [{"name": name, "value": str(value)} for name, value in facts.items() if value not in (None, "")]
    return {"code": code, "message": _message(code, status), "details": details}


def plain(code: str, message: str, **details: str) -> dict[str, Any]:
    """Returns an error of a job that never ran."""
    named = [{"name": name, "value": value} for name, value in details.items()]
    return {"code": code, "message": message, "details": named}


def _code(status: Status) -> str:
    if status.reason == "rank":
        text = "\n".join(status.tail)
        for code, pattern in _HOROVOD:
            if pattern.search(text):
                return code
    return _CODES.get(status.reason, "EngineFailed")


def _signal(status: Status) -> int | None:
    code = status.exit_code
    return code - 128 if status.rank is not None and code is not None and code > 128 else None


def _message(code: str, status: Status) -> str:
    told = status.error[:1].upper() + status.error[1:] or "It ended without saying why"
    where = f" on node {status.node}" if status.node else ""
    hint = {
        "OutOfMemory": "; it was killed for want of memory: lower the batch size or the number of ranks",
        "HorovodMissing": "; Horovod is not installed: python -m batchhvd.trainer.install",
        "HorovodBroken": "; Horovod does not fit this framework: python -m batchhvd.trainer.install",
    }.get(code, "")
    last = f"; last line: {status.tail[-1]}" if status.tail else ""
    return f"{told}{where}{hint}{last}."
