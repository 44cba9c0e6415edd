"""The environment variables of a job that the service itself interprets, and what each may be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

RETRIES = "BATCHHVD_RETRIES"
"""How often a job is started again after a failure."""

STALL_SECONDS = "BATCHHVD_STALL_SECONDS"
"""How long ranks may neither write nor compute, in seconds; 0 for ever."""

STALL_ACTION = "BATCHHVD_STALL_ACTION"
"""What happens to ranks that stall."""

NUM_GPUS = "AZ_BATCHAI_NUM_GPUS"
"""How many GPUs of its node a job uses."""

CONTENT = "BATCHHVD_CONTENT"
"""What was uploaded for a job: a JSON object of the paths and checksums of its files. The client writes it."""

RUN = "BATCHHVD_RUN"
"""A random text that makes two otherwise equal runs different jobs. The client writes it."""

AFTER = "BATCHHVD_AFTER"
"""After which jobs of its experiment a job starts: their names with commas between them. It needs them to succeed; with
``:ended`` behind a name any end will do."""

ORIGIN = "BATCHHVD_ORIGIN"
"""How a job was started that no job file describes: ``run SCRIPT`` or ``submit FUNCTION``. The client writes it."""

SWEEP = "BATCHHVD_SWEEP"
"""To which sweep a job belongs: where its definition lies, then ``#`` and the trial's number. The client writes it."""

POINT = "BATCHHVD_POINT"
"""The values that a trial of a sweep tries, as a JSON object. The client writes it."""

ENGINE_OPTIONS = "BATCHHVD_ENGINE_OPTIONS"
"""Options of the engine for this job alone: a JSON object of texts, such as ``{"partition": "gpu"}``."""

_TEXT = r'"[^"\\]*"'
_WHOLE = re.compile("[0-9]{1,9}")
_ALLOWED: Mapping[str, tuple[re.Pattern[str], str]] = {
    RETRIES: (_WHOLE, "a whole number of at most nine digits"),
    NUM_GPUS: (_WHOLE, "a whole number of at most nine digits"),
    STALL_SECONDS: (re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"), "a number of seconds, such as 600 or 2.5"),
    STALL_ACTION: (re.compile("warn|stop"), "'warn' or 'stop'"),
    ENGINE_OPTIONS: (
        re.compile(rf"\s*\{{\s*({_TEXT}\s*:\s*{_TEXT}\s*(,\s*{_TEXT}\s*:\s*{_TEXT}\s*)*)?\}}\s*"),
        'a JSON object of texts, such as {"partition": "gpu"}',
    ),
    AFTER: (re.compile(r"[-\w]+(:ended)?(,[-\w]+(:ended)?)*", re.ASCII), "names of jobs, such as 'first,second:ended'"),
}


class EarlierJob(NamedTuple):
    """A job that must come before another one.

    Attributes:
        name: its name.
        may_fail: whether any end of it will do.
    """

    name: str
    may_fail: bool


def earlier_jobs(value: str) -> tuple[EarlierJob, ...]:
    """Returns the jobs that a value of ``BATCHHVD_AFTER`` names; none if it is not one."""
    if not value or allowed(AFTER, value):
        return ()
    parts = (part.partition(":") for part in value.split(","))
    return tuple(EarlierJob(name, bool(goal)) for name, _, goal in parts)


def after(jobs: Iterable[EarlierJob]) -> str:
    """Returns the value of ``BATCHHVD_AFTER`` that names some jobs, "" for none."""
    return ",".join(f"{name}:ended" if may_fail else name for name, may_fail in jobs)


def allowed(name: str, value: str) -> str:
    """Returns what the value of a variable must be, "" if this one is right or the service does not interpret it."""
    pattern, text = _ALLOWED.get(name, (None, ""))
    return "" if pattern is None or pattern.fullmatch(value) else text


def interpreted(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that the service interprets and whose values it can."""
    return {name: value for name, value in variables.items() if name in _ALLOWED and not allowed(name, value)}


def trial(variables: Mapping[str, str]) -> tuple[str, int, dict[str, object]] | None:
    """Returns sweep, number and point of a trial; None of a job that is none, or says it in another way."""
    place, mark, number = variables.get(SWEEP, "").rpartition("#")
    try:
        point = json.loads(variables.get(POINT, ""))
    except ValueError:
        return None
    is_one = bool(place and mark) and number.isascii() and number.isdigit() and isinstance(point, dict)
    return (place, int(number), point) if is_one else None


def engine_options(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of the engine that a job names for itself; none if its variable is not right."""
    found: dict[str, str] = json.loads(interpreted(variables).get(ENGINE_OPTIONS, "{}"))
    return found
