"""Watches jobs in Slurm with few questions: one for all jobs, and more seldom while nothing changes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from batchhvd.engines.slurm.answers import FIELDS, SlurmJob, accounted, job_of, placed, readable
from batchhvd.engines.slurm.commands import SlurmCommands

SELDOM = 20  # how many pauses lie between two questions at most
_UNKNOWN = "Invalid job id"  # what squeue says if it knows none of the jobs; any other failure is not an answer
_SLOWER = 1.5
_WANTED = 60.0  # seconds for which a job is asked about after the last interest in it


class JobWatch:
    """Asks Slurm about jobs.

    Args:
        commands: Slurm's commands.
        pause: the least number of seconds between two questions; it grows while the answers are the same.
    """

    def __init__(self, commands: SlurmCommands, pause: float) -> None:
        self._commands, self._pause, self._interval = commands, pause, pause
        self._asked = -math.inf  # when Slurm answered last
        self._silent = -math.inf  # when it last gave no answer
        self._known: dict[str, SlurmJob | None] = {}
        self._wanted: dict[str, float] = {}  # when somebody last wanted to know of a job

    @property
    def silence(self) -> str:
        """Says why there is no answer."""
        return "Slurm's controller does not answer" if self._is_silent() else "Slurm has not answered yet"

    def jobs(self, numbers: Sequence[str]) -> dict[str, SlurmJob] | None:
        """Returns what Slurm says about those of some jobs that it knows, or None while it does not answer.

        An answer is used again for a while.
        """
        now = time.monotonic()
        self._wanted |= dict.fromkeys(numbers, now)
        if not self._covers(numbers) or now - self._asked > self._interval:
            self._wanted = {number: since for number, since in self._wanted.items() if now - since <= _WANTED}
            self._ask(tuple(self._wanted))
        if self._is_silent() or not self._covers(numbers):
            return None
        found = {number: self._known[number] for number in numbers}
        return {number: job for number, job in found.items() if job is not None}

    def forget(self, number: str) -> None:
        """Asks about a job at the next occasion: something is being done to it."""
        self._known.pop(number, None)
        self._interval = self._pause

    def mine(self) -> dict[str, SlurmJob] | None:
        """Returns all jobs of this user, also those that only the accounting remembers; None if nobody answers."""
        found = self._squeue("--me")
        return None if found is None else {**self._remembered(), **found}

    def _covers(self, numbers: Sequence[str]) -> bool:
        return set(numbers) <= set(self._known)

    def _is_silent(self) -> bool:
        return time.monotonic() - self._silent < SELDOM / 2 * self._pause

    def _ask(self, numbers: tuple[str, ...]) -> None:
        if self._is_silent():
            return
        asked, found = self._commands.soon("squeue", lambda: (numbers, self._look(numbers))) or ((), None)
        if found is None:
            return
        fresh = {number: found.get(number) for number in asked}
        same = fresh == {number: self._known.get(number) for number in asked}
        self._interval = min(self._interval * _SLOWER, SELDOM * self._pause) if same else self._pause
        self._known, self._asked = fresh, time.monotonic()

    def _look(self, numbers: Sequence[str]) -> dict[str, SlurmJob] | None:
        found = self._squeue(_chosen(numbers))
        if found is None:
            return None
        forgotten = [number for number in numbers if number not in found]
        return {**found, **(self._sacct(forgotten) if forgotten else {})}

    def _squeue(self, which: str) -> dict[str, SlurmJob] | None:
        fields = ",".join(f"{name}:|" for name in FIELDS)
        answer = self._commands.run("squeue", "--noheader", "--array", "--states=all", which, f"--Format={fields}")
        if answer.returncode and _UNKNOWN not in answer.stderr:
            self._silent = time.monotonic()
            return None
        return readable(job_of, answer.stdout)  # an unknown job has no line

    def _sacct(self, numbers: Sequence[str]) -> dict[str, SlurmJob]:
        """Asks the accounting about jobs that the controller has forgotten; most small sites have no accounting."""
        if not self._commands.has("sacct"):
            return {}
        columns = "--format=JobID,State,ExitCode,End"
        which = ("--starttime=1970-01-01", _chosen(numbers))
        answer = self._commands.run("sacct", "-n", "-P", "-X", *which, columns)
        return readable(accounted, answer.stdout) if not answer.returncode else {}

    def _remembered(self) -> dict[str, SlurmJob]:
        if not self._commands.has("sacct"):
            return {}
        columns = "--format=JobID,State,ExitCode,End,WorkDir"
        answer = self._commands.run("sacct", "-n", "-P", "-X", "--starttime=now-1days", columns)
        return readable(placed, answer.stdout) if not answer.returncode else {}


def _chosen(numbers: Sequence[str]) -> str:
    """Returns the option that chooses jobs; arrays as a whole, since a command line with all elements is too long."""
    return f"--jobs={','.join(sorted({number.partition('_')[0] for number in numbers}))}"
