"""How a run that failed is described in its job's document. Pure."""

from __future__ import annotations

import re

from batchhvd.engines.base import Status, StopReason
from batchhvd.service.store import documents
from batchhvd.service.store.documents import ErrorDocument
from batchhvd.wire.facts.causes import CODE_OF_REASON, Code
from batchhvd.wire.facts.output import memory_error, without_notices

_HOROVOD = (
    (Code.HOROVOD_BROKEN, re.compile(r"\bHorovodBrokenError\b")),
    (Code.HOROVOD_MISSING, re.compile(r"\bHorovodMissingError\b|No module named 'horovod")),
)


def error(status: Status, *, attempt: int, node: str = "", path: str = "", image: str = "") -> ErrorDocument:
    """Returns the error of a run that did not succeed: code, message, details.

    Args:
        status: how it ended.
        attempt: which attempt it was.
        node: the node to name when the status names none.
        path: the path that was missing, for ``ScriptNotFound``.
        image: says that the job's image was not run, if so.
    """
    code = _code(status)
    facts = {
        "Rank": status.rank,
        "Node": status.node or node,
        "ExitCode": status.exit_code,
        "Signal": _signal(status),
        "Attempt": attempt,
        "Tail": "\n".join(without_notices(status.tail)),
        "Image": image,
        "Path": path if status.reason == StopReason.SCRIPT else "",
    }
    told = {name: str(value) for name, value in facts.items() if value not in (None, "")}
    return documents.error(code, _message(code, status), **told)


def _code(status: Status) -> Code:
    if status.reason == StopReason.RANK:
        text = "\n".join(status.tail)
        for code, pattern in _HOROVOD:
            if pattern.search(text):
                return code
        if memory_error(status.tail):
            return Code.OUT_OF_MEMORY
    return CODE_OF_REASON.get(status.reason, Code.ENGINE_FAILED)


def _signal(status: Status) -> int | None:
    code = status.exit_code
    return code - 128 if status.rank is not None and code is not None and code > 128 else None


def _message(code: Code, status: Status) -> str:
    told = status.error[:1].upper() + status.error[1:] or "It ended without saying why"
    where = f" on node {status.node}" if status.node else ""
    killed = "" if memory_error(status.tail) else " and was killed"
    hint = {
        Code.OUT_OF_MEMORY: f"; it ran out of memory{killed}: lower the batch size or the number of ranks",
        Code.HOROVOD_MISSING: "; Horovod is not installed: python -m batchhvd.trainer.install",
        Code.HOROVOD_BROKEN: "; Horovod does not fit this framework: python -m batchhvd.trainer.install",
    }.get(code, "")
    tail = without_notices(status.tail)
    last = f"; last line: {memory_error(tail) or tail[-1]}" if tail else ""
    return f"{told}{where}{hint}{last}."
