"""How long ranks have to save when Slurm ends a job, and who sends them SIGTERM.

Source: KillWait, ProctrackType and PreemptType in slurm.conf's manual page, GraceTime in those of partitions and QOS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import define, field

from batchhvd.engines.slurm.commands import SlurmCommands

_SETTING = re.compile(r"^(\w+)\s*=\s*(\S*)", re.MULTILINE)
_GRACE = re.compile(r"\bGraceTime=([0-9]+)")
_EARLIER = 2.0  # seconds between our own SIGKILL and Slurm's, in which the runner completes its records
_LEAST = 3.0


@define
class SiteGrace:
    """What a site grants to jobs that end.

    Attributes:
        commands: Slurm's commands.
    """

    commands: SlurmCommands
    _settings: dict[str, str] = field(factory=dict, init=False)
    _granted: dict[tuple[str, str], float] = field(factory=dict, init=False)

    def kill_wait(self) -> float | None:
        """Returns how many seconds a task's ranks have after SIGTERM, so that Slurm's own SIGKILL comes later."""
        wait = self._setting("KillWait")
        return max(_LEAST, float(wait) - _EARLIER) if wait.isdigit() else None

    def reaches_ranks(self) -> bool:
        """Says whether Slurm sends signals to all processes of a job; by process groups, ranks would not get them."""
        kind = self._setting("ProctrackType")
        return bool(kind) and kind != "proctrack/pgid"

    def preemption(self, options: Mapping[str, str]) -> float | None:
        """Returns how many seconds a job's ranks have after SIGTERM if a job of higher priority takes its nodes.

        Args:
            options: the options of sbatch for the job.
        """
        kind = {"preempt/qos": "qos", "preempt/partition_prio": "partition"}.get(self._setting("PreemptType"), "")
        name = options.get(kind, "")
        if kind and (kind, name) not in self._granted:
            self._granted[kind, name] = self._asked(kind, name)
        found = self._granted.get((kind, name), 0.0)
        return max(_LEAST, found - _EARLIER) if found else None

    def _asked(self, kind: str, name: str) -> float:
        if kind == "qos":
            told = self.commands.run("sacctmgr", "-nP", "show", "qos", name or "normal", "format=GraceTime").stdout
            parts = [int(part) for part in told.strip().split(":") if part.isdigit()]
            return float(sum(part * 60**place for place, part in enumerate(reversed(parts))))
        names = name.split(",") if name else []
        told = self.commands.run("scontrol", "show", "partition", *names[:1]).stdout
        blocks = [block for block in told.split("\n\n") if name or "Default=YES" in block]
        found = _GRACE.search(blocks[0]) if blocks else None
        return float(found[1]) if found else 0.0

    def _setting(self, name: str) -> str:
        if not self._settings and self.commands.has("scontrol"):
            self._settings = dict(_SETTING.findall(self.commands.run("scontrol", "show", "config").stdout))
        return self._settings.get(name, "")
