"""What Slurm says about the partition: its nodes, and its time limit."""

from __future__ import annotations

import math
import re
import time
from collections import Counter

from batchhvd.engines.slurm.answers import nodes_of
from batchhvd.engines.slurm.commands import SlurmCommands
from batchhvd.engines.slurm.watch import SELDOM

_LIMIT = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")  # days-hours:minutes:seconds, and shorter
_LASTS = 600.0  # seconds for which a partition's time limit is taken to be the same


class Partition:
    """Asks Slurm about the partition.

    Args:
        commands: Slurm's commands.
        name: its name, "" for the default one.
        pause: the least number of seconds between two questions to Slurm.
    """

    def __init__(self, commands: SlurmCommands, name: str, pause: float) -> None:
        self._commands, self._name, self._pause = commands, name, pause
        self._asked, self._limit_asked = -math.inf, -math.inf
        self._nodes: dict[str, tuple[bool, str]] | None = None
        self._limit: int | None = None

    def nodes(self) -> dict[str, tuple[bool, str]] | None:
        """Returns for each node whether it accepts jobs, and its state with Slurm's reason.

        While the controller does not answer, the last answer is reused; None if there was none.
        """
        if time.monotonic() - self._asked > SELDOM * self._pause:
            lines = self._commands.soon("sinfo", lambda: self._sinfo("--Node", "--format=%P|%N|%T|%E"))
            if lines is not None:
                self._nodes = nodes_of(lines, bool(self._name)) if lines else self._nodes
                self._asked = time.monotonic()
        return self._nodes

    def counted(self) -> str:
        """Returns how many nodes are in which state, "" if that is not known."""
        states = Counter(text.partition(":")[0] for _, text in (self.nodes() or {}).values())
        told = ", ".join(f"{count} {state}" for state, count in states.most_common())
        return f"of {states.total()} nodes, {told}" if told else ""

    def minutes(self) -> int | None:
        """Returns the time limit in minutes, the longest of several partitions; None if there is none or no answer."""
        if time.monotonic() - self._limit_asked > _LASTS:
            rows = [line.split("|") for line in self._sinfo("--format=%P|%l")]
            chosen = [row for row in rows if len(row) == 2 and (self._name or row[0].endswith("*") or len(rows) == 1)]
            limits = [_minutes(row[1]) for row in chosen]
            self._limit = None if None in limits else max(filter(None, limits), default=None)
            self._limit_asked = time.monotonic()
        return self._limit

    def _sinfo(self, *arguments: str) -> list[str]:
        """Returns the lines of an answer, none if there was no answer."""
        chosen = [f"--partition={self._name}"] if self._name else []
        answer = self._commands.run("sinfo", "--noheader", *chosen, *arguments)
        return [] if answer.returncode else answer.stdout.splitlines()


def _minutes(text: str) -> int | None:
    found = _LIMIT.fullmatch(text.strip())
    if not found:  # "infinite", "n/a"
        return None
    days, first, second, third = (None if part is None else int(part) for part in found.groups())
    if days is not None or third is not None:
        return (days or 0) * 1440 + first * 60 + (second or 0)  # type: ignore[operator]
    return first  # minutes:seconds
