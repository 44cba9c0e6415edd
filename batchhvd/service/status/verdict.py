"""Why a job is in its state: a sentence and a next step, from its document alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from batchhvd.service.store.documents import ErrorDocument, ExecutionInfo, JobProperties
from batchhvd.wire.facts import additions
from batchhvd.wire.facts.causes import CAUSE_OF_CODE, GONE_WITH_THE_SERVICE, REMEDIES, Cause, Code
from batchhvd.wire.facts.output import without_notices
from batchhvd.wire.facts.states import JobState

WAITING = "waiting"
"""The cause of a job that waits, whatever for: its sentence says it."""

_RESTARTED = "The service was started again at {} and found that the job's ranks were gone: {}"
_WORDS = {"Rank": "rank", "Node": "node", "ExitCode": "exit code", "Signal": "signal", "Attempt": "attempt"}
_SENTENCES: Mapping[str, str] = {
    JobState.TERMINATING: "It was asked to end, and its ranks are ending.",
    JobState.QUEUED: "It is waiting for its turn.",
    JobState.SUCCEEDED: "It succeeded.",
}


class JobVerdict(TypedDict):
    """Why a job is in its state.

    Keys:
        cause: the cause, in the words of ``Cause``, or the job's state when nothing more is known.
        why: a sentence.
        evidence: lines that support it.
        tail: the last lines of the rank that failed.
        next: what to do, in words for the command line; "" when nothing needs doing.
    """

    cause: str
    why: str
    evidence: list[str]
    tail: str
    next: str


def of_job(properties: JobProperties, restarted: str = "", *, name: str = "NAME", preparing: str = "") -> JobVerdict:
    """Returns why a job is in its state.

    Args:
        properties: the job's, as its document has them.
        restarted: when the service was last started, in the form that the document's times have; "" when unknown.
        name: the job's name, for the commands.
        preparing: the command of its preparation while that runs, else "".
    """
    state, info = properties["executionState"], properties.get("executionInfo") or {}
    errors: list[ErrorDocument] = list(additions.told_errors(properties))
    if not errors or state == JobState.SUCCEEDED:
        plain = _plain(state, properties.get("nodeCount", 1), info.get("exitCode"), name)
        if preparing and state == JobState.RUNNING:
            plain["why"] = f"It is being prepared: {preparing}"
        return {**plain, "evidence": [f"before that: {error['message']}" for error in errors]}
    first, failed = errors[0], state == JobState.FAILED
    cause, why = _cause(first["code"]), first["message"]
    if failed and cause in GONE_WITH_THE_SERVICE and _between(info, restarted):
        cause, why = Cause.SERVICE_RESTARTED, _RESTARTED.format(restarted[11:19], why)
    return {
        "cause": state if state == JobState.RUNNING else cause,
        "why": why,
        "evidence": _evidence(first, errors[1:]),
        "tail": _story("\n".join(without_notices(_details(first).get("Tail", "").splitlines()))),
        "next": _next(cause, name) if failed else "",
    }


def _cause(code: str) -> str:
    return WAITING if code == Code.WAITING else CAUSE_OF_CODE.get(code, code)


def _next(cause: str, name: str) -> str:
    """Returns what to do about a cause as a sentence."""
    known = REMEDIES.get(Cause(cause)) if cause in set(Cause) else None
    remedy = known.named(name).shell if known else ""
    return f"{remedy[:1].upper()}{remedy[1:]}." if remedy else ""


def _evidence(first: ErrorDocument, earlier: list[ErrorDocument]) -> list[str]:
    details = _details(first)
    facts = ", ".join(f"{word} {details[name]}" for name, word in _WORDS.items() if name in details)
    return [*([facts] if facts else []), *(f"before that: {error['message']}" for error in earlier)]


def _between(info: ExecutionInfo, moment: str) -> bool:
    """Says whether a moment is within a job's run; the service writes all its times in one form."""
    return bool(moment) and info.get("startTime", moment) < moment <= info.get("endTime", moment)


def _plain(state: str, nodes: int, exit_code: int | None, name: str) -> JobVerdict:
    sentences = {**_SENTENCES, JobState.RUNNING: f"It is running on {nodes} node{'s' if nodes != 1 else ''}."}
    why = sentences.get(state, f"It failed with exit code {exit_code}, and no reason is known.")
    then = "" if state in sentences else _next(Cause.UNKNOWN, name)
    return {"cause": state, "why": why, "evidence": [], "tail": "", "next": then}


def _story(tail: str) -> str:
    """Returns the last traceback of some lines, or all lines when they hold none."""
    before, mark, after = tail.rpartition("Traceback (most recent call last)")
    return mark + after if not before or before.endswith("\n") else tail


def _details(error: ErrorDocument) -> dict[str, str]:
    return {entry["name"]: str(entry["value"]) for entry in error.get("details") or ()}
