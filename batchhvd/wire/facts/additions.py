"""What the local service tells of a job or a file server beyond Batch AI's fields: ``properties.batchhvd``.

Clients of Batch AI test whether a field is there, such as ``executionInfo``; none of them holds more than there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

FIELD = "batchhvd"
ERRORS = "errors"
"""Why the job waits or failed, each with code, message and details; the latest first, then earlier attempts'."""
RAN = "ran"
"""False for a job that ended without having run; its two times are then those of its end."""
WARNINGS = "warnings"
"""What the job asked for that has no effect, or another one than on Batch AI; one sentence each."""

PREPARATION = "preparation"
"""Where the job's preparation would run, in words; only in the answer to a dry run."""

HOST_KEY = "hostKey"
"""The fingerprint of a node's host key, in the list of logins."""

FOLDER = "folder"
"""Where on this machine the files of a file server are."""


def of(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns what is added to a job's ``properties``; nothing by another service."""
    found: Mapping[str, Any] = properties.get(FIELD) or {}
    return found


def told_errors(properties: Mapping[str, Any]) -> Sequence[Any]:
    """Returns why a job waits or failed: in the local service's words, or by another service's ``executionInfo``."""
    own = of(properties)
    execution = properties.get("executionInfo") or {}
    found: Sequence[Any] = own[ERRORS] if ERRORS in own else execution.get("errors") or ()
    return found


def ran(properties: Mapping[str, Any]) -> bool:
    """Says whether a job began to run, as far as its ``properties`` tell."""
    return bool(of(properties).get(RAN, True))
