"""The environment variables of a job that the service itself interprets, and what each may be."""

from __future__ import annotations

import re
from collections.abc import Mapping

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

_WHOLE = re.compile("[0-9]{1,9}")
_ALLOWED: Mapping[str, tuple[re.Pattern[str], str]] = {
    RETRIES: (_WHOLE, "a whole number of at most nine digits"),
    NUM_GPUS: (_WHOLE, "a whole number of at most nine digits"),
    STALL_SECONDS: (re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?"), "a number of seconds, such as 600 or 2.5"),
    STALL_ACTION: (re.compile("warn|stop"), "'warn' or 'stop'"),
}


def allowed(name: str, value: str) -> str:
    """Returns what the value of a variable must be, "" if this one is right or the service does not interpret it."""
    pattern, text = _ALLOWED.get(name, (None, ""))
    return "" if pattern is None or pattern.fullmatch(value) else text


def interpreted(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that the service interprets and whose values it can."""
    return {name: value for name, value in variables.items() if name in _ALLOWED and not allowed(name, value)}
