"""Why a job is as it is, in a sentence and a next step, read from its document alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CAUSES = {
    "MountFailed": "mount failed",
    "ScriptNotFound": "script missing",
    "JobPreparationFailed": "preparation failed",
    "RankFailed": "rank failed",
    "OutOfMemory": "out of memory",
    "WallClockLimit": "wall-clock limit",
    "JobTerminated": "terminated",
    "NodeLost": "node lost",
    "ServiceRestarted": "service restarted",
    "HorovodMissing": "Horovod missing",
    "HorovodBroken": "Horovod broken",
    "EngineFailed": "engine failed",
    "Waiting": "waiting",
}
_INSTALL = "Run python -m batchhvd.trainer.install on the machine that runs the nodes, then submit it again."
_NEXT = {
    "MountFailed": "Make the share, or correct the mount's account, share or key; then submit it again.",
    "ScriptNotFound": "Upload the script to where the job looks for it, then submit it again.",
    "JobPreparationFailed": "Read stderr-job_prep-*.txt, correct the preparation's command, then submit it again.",
    "RankFailed": "Read stderr.txt for the whole story, mend the script, then submit it again.",
    "OutOfMemory": "Lower the batch size or the number of ranks on a node, then submit it again.",
    "WallClockLimit": "Give it more time (maxWallClockTime), or go on from its last checkpoint in a new job.",
    "JobTerminated": "Submit it again under a new name if it was not meant to end.",
    "ServiceRestarted": "Submit it again; it resumes where its script keeps checkpoints.",
    "NodeLost": "Look at its cluster, then submit it again; it resumes where its script keeps checkpoints.",
    "HorovodMissing": _INSTALL,
    "HorovodBroken": _INSTALL,
    "EngineFailed": "Read its execution-*.log files and the service's log, then submit it again.",
}
_GONE = ("NodeLost", "EngineFailed")  # what a service says of ranks that ended while it was not there
_RESTARTED = "The service was started again at {} and found the job's ranks gone: {}"
_WORDS = {"Rank": "rank", "Node": "node", "ExitCode": "exit code", "Signal": "signal", "Attempt": "attempt"}
_PLAIN = {
    "terminating": "Somebody asked it to end, and its ranks are ending.",
    "queued": "It waits for its turn.",
    "succeeded": "It ended well.",
}


def of_job(properties: Mapping[str, Any], restarted: str = "") -> dict[str, Any]:
    """Returns cause, why, evidence (lines), tail (the last lines of the rank that failed) and next of a job.

    Args:
        properties: the job's, as its document has them.
        restarted: when the service was last started, in the form that the document's times have; "" where unknown.
    """
    state, info = properties["executionState"], properties.get("executionInfo") or {}
    errors = info.get("errors") or []
    if not errors:
        return _plain(state, properties.get("nodeCount", 1), info.get("exitCode"))
    first, earlier = errors[0], errors[1:]
    if state == "failed" and first["code"] in _GONE and _between(info, restarted):
        first = {**first, "code": "ServiceRestarted", "message": _RESTARTED.format(restarted[11:19], first["message"])}
    details = _details(first)
    facts = ", ".join(f"{word} {details[name]}" for name, word in _WORDS.items() if name in details)
    return {
        "cause": state if state == "running" else _CAUSES.get(first["code"], first["code"]),
        "why": first["message"],
        "evidence": [*([facts] if facts else []), *(f"before that: {error['message']}" for error in earlier)],
        "tail": _story(details.get("Tail", "")),
        "next": _NEXT.get(first["code"], "") if state == "failed" else "",
    }


def _between(info: Mapping[str, Any], moment: str) -> bool:
    """Tells whether a moment lies within a job's run; the service writes all its times in one form."""
    return bool(moment) and info.get("startTime", moment) < moment <= info.get("endTime", moment)


def _plain(state: str, nodes: int, exit_code: int | None) -> dict[str, Any]:
    sentences = {**_PLAIN, "running": f"It runs on {nodes} node{'s' if nodes != 1 else ''}."}
    why = sentences.get(state, f"It failed with exit code {exit_code}, and no reason is known.")
    then = "" if state in sentences else "Read its log files."
    return {"cause": state, "why": why, "evidence": [], "tail": "", "next": then}


def _story(tail: str) -> str:
    """Returns the last traceback in some lines, all of them where there is none."""
    before, mark, after = tail.rpartition("Traceback (most recent call last)")
    return mark + after if not before or before.endswith("\n") else tail


def _details(error: Mapping[str, Any]) -> dict[str, str]:
    return {entry["name"]: str(entry["value"]) for entry in error.get("details") or ()}
