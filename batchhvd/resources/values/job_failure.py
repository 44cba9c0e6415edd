"""The error of a job that failed: its cause, the last lines of the rank, and where to read on."""

from __future__ import annotations

from collections.abc import Sequence

from batchhvd.errors import JobFailedError
from batchhvd.wire.facts.output import without_notices
from batchhvd.wire.reasons import Reason

_SHOWN = 10  # lines of the failed rank in the error's text; the error's ``tail`` has them all


def failure(
    id: str, name: str, errors: Sequence[Reason], *, exit_code: int | None, files: Sequence[str]
) -> JobFailedError:
    """Returns the error.

    Args:
        id: the job's id.
        name: its name.
        errors: what the service reports.
        exit_code: its exit code, or None.
        files: the names of its log files.
    """
    reason = errors[0] if errors else Reason("", "the service gave no reason")
    details = reason.details
    tail = without_notices(details.get("Tail", "").splitlines())
    what = f"job {name!r} failed: {str(reason).rstrip('.')}"
    message = f"{what}. Call its explain() for the cause"
    message += f", or read {', '.join(files)} with stream()" if files else ""
    shell = f"{what}. `batchhvd job explain {name}` shows the cause, `batchhvd job logs {name}` the log"
    return JobFailedError(
        "\n    ".join([message, *tail[-_SHOWN:]]),
        resource=id,
        reasons=[str(reason) for reason in errors],
        exit_code=exit_code,
        node=details.get("Node", ""),
        rank=int(details["Rank"]) if details.get("Rank", "").isdigit() else None,
        tail=tail,
        files=list(files),
    ).told("\n    ".join([shell, *tail[-_SHOWN:]]))
