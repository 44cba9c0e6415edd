"""Reads the answers of Slurm's commands.

A job's number is that of Slurm, or array and index, such as ``"12_3"``, for an element of an array.

Source: the manual pages of squeue, sacct and sinfo of Slurm 22.05.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from datetime import datetime

from attrs import evolve, frozen

FIELDS = ("JobArrayID", "State", "Reason", "RestartCnt", "exit_code", "EndTime", "WorkDir")
_DOUBTFUL = re.compile("timed out|Zero Bytes|recv|receive|reset by peer|Broken pipe|Unexpected message", re.IGNORECASE)
_PASSING = re.compile(
    _DOUBTFUL.pattern
    + "|Unable to contact|connect failure|Connection refused|temporarily|standby mode|inactive or drain"
    "|Resource busy|try again|too many|Nodes are busy|Unable to allocate|currently unavailable|Controller is",
    re.IGNORECASE,
)
# Limits that a single job exceeds whenever it is submitted; the others are about what else runs or waits.
_NEVER = re.compile("Per(Job|Node)|MaxWall|Wall(Clock)?Duration|MaxTime|Min(Cpu|GRES|TRES)|TimeLimit")
_UNUSABLE = re.compile("down|drain.*|drng|fail.*|error|inval|maint|unk.*|.*[*]")


@frozen
class SlurmJob:
    """What Slurm says about a job.

    Attributes:
        state: Slurm's word, such as ``"RUNNING"``.
        reason: why it waits or failed, in Slurm's words.
        restarts: how often Slurm has started it again.
        exit_code: the batch script's, as a shell gives it.
        ended: seconds since 1970, or None.
        folder: its working directory, or "" if it is unknown.
    """

    state: str
    reason: str = ""
    restarts: int | None = None
    exit_code: int | None = None
    ended: float | None = None
    folder: str = ""


def job_of(line: str) -> tuple[str, SlurmJob]:
    """Reads a line of squeue: the fields are those of ``FIELDS``, each followed by a bar."""
    number, state, reason, restarts, code, ended, folder = line.removesuffix("|").split("|", len(FIELDS) - 1)
    job = SlurmJob(state, reason, int(restarts or 0), _shell_code(int(code or 0)), _seconds(ended), folder)
    return number, job


def accounted(line: str) -> tuple[str, SlurmJob]:
    """Reads a line of sacct; a state may be followed by who caused it, an exit code is followed by a signal."""
    number, state, code, ended = line.split("|")
    exit_code, _, number_of_signal = code.partition(":")
    signalled = int(number_of_signal or 0)
    return number, SlurmJob(
        state.partition(" ")[0], "", None, 128 + signalled if signalled else int(exit_code), _seconds(ended)
    )


def placed(line: str) -> tuple[str, SlurmJob]:
    """Reads a line of sacct that also has the working directory."""
    rest, _, folder = line.rpartition("|")
    number, job = accounted(rest)
    return number, evolve(job, folder=folder)


def is_passing(told: str) -> bool:
    """Says whether sbatch's refusal is about this moment and not about the job: the same job may be accepted later.

    Source: slurm_errno.c and the manual pages sbatch and resource_limits of Slurm 22.05 and later.
    """
    if "accounting/QOS policy" in told:
        return not _NEVER.search(told)
    return bool(_PASSING.search(told))


def is_doubtful(told: str) -> bool:
    """Says whether Slurm may have accepted a job although sbatch failed: its answer was lost on the way."""
    return bool(_DOUBTFUL.search(told))


def readable(read: Callable[[str], tuple[str, SlurmJob]], text: str) -> dict[str, SlurmJob]:
    """Returns the jobs in an answer by number; a line that is none is left out, so that it hides no other job."""
    found = {}
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            number, job = read(line)
            found[number] = job
    return found


def _shell_code(wait_status: int) -> int:
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code


def _seconds(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp()  # Slurm writes local time
    except ValueError:
        return None


def nodes_of(lines: Sequence[str], chosen: bool) -> dict[str, tuple[bool, str]]:
    """Reads the lines of sinfo; if no partition was chosen, only the default one counts, which is marked by a star."""
    rows = [line.split("|", 3) for line in lines]
    default = not chosen and any(row[0].endswith("*") for row in rows)
    rows = [row for row in rows if len(row) == 4]
    return {name: _node_of(state, why) for where, name, state, why in rows if where.endswith("*") or not default}


def _node_of(state: str, why: str) -> tuple[bool, str]:
    """Returns whether a node in this state accepts jobs, and a description; a star means that it does not answer."""
    text = state.rstrip("*~#!%$@^-+")
    return not _UNUSABLE.fullmatch(state.rstrip("~#!%$@^-+")), f"{text}: {why}" if why not in ("", "none") else text
