"""Watches for ranks that neither write nor compute, and for those that others wait for; finds out what they do."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time

from batchhvd.node.folder.state import NodeState, StallAction, StopReason
from batchhvd.node.processes import cpu_seconds, descendants, send, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchhvd.node.child import Child
    from batchhvd.node.journal import Journal

# What rank 0 of Horovod writes about ranks that it has waited for (horovod/common/stall_inspector.cc of 0.28.1).
_MISSING = re.compile(r"more than (\d+) seconds\..*?Missing ranks:\n((?:\d+!?: \[[^\n]*\n?)+)", flags=re.DOTALL)
_EAR = 2.0  # seconds between two looks at what the ranks have written
_IDLE_SHARE = 0.1  # of a core; a rank below that only waits (Horovod's own thread takes a few percent)


class Watchdog:
    """Examines a node's ranks when none of them has written or computed for the time that the task sets.

    Args:
        journal: the node's journal.
        children: the node's children; the list changes meanwhile.
        limit: seconds, or None for never.
        action: a ``StallAction``.
    """

    def __init__(self, journal: Journal, children: Sequence[Child], limit: float | None, action: str) -> None:
        self.journal, self.children = journal, children
        self.limit, self.action = limit, action
        self.seen, self.warned = (0, 0.0), False
        self.listened, self.missing = 0.0, ""
        self.begin()

    def begin(self) -> None:
        """Starts counting now."""
        self.looked = self.lively = time.monotonic()

    def look(self, now: float) -> None:
        """Checks what the ranks have done since the last look, and acts if they did nothing for too long."""
        self._listen(now)
        limit = self.limit
        if limit is None or self.journal.record["state"] != NodeState.RUNNING:
            return
        if now - self.looked < min(5.0, limit / 10):
            return
        self._measure(now)
        if now - self.lively > limit and not self.warned and any(child.ended_at is None for child in self.children):
            self.warned = True
            self._stalled(limit)

    def _listen(self, now: float) -> None:
        """Notes for which ranks Horovod says that it waits."""
        if now - self.listened < _EAR:
            return
        self.listened = now
        for child in self.children:
            text = missing_ranks(child.last_output)
            if text not in ("", self.missing):
                self.missing = text
                self.journal.note(text)

    def _measure(self, now: float) -> None:
        written, spent = sum(child.written for child in self.children), cpu_seconds(descendants(os.getpid()))
        share = (spent - self.seen[1]) / max(1, len(self.children)) / (now - self.looked)
        if written != self.seen[0] or share > _IDLE_SHARE:
            self.lively, self.warned = now, False
        self.looked, self.seen = now, (written, spent)

    def _stalled(self, limit: float) -> None:
        self.journal.note(f"no output and next to no computing for {limit:g} s")
        if self.action != StallAction.STOP:
            return self.note_stacks(last_chance=False)
        frozen = next((child.rank for child in self.children if state(child.pid) == "T"), None)
        which = "the ranks wait for something" if frozen is None else f"rank {frozen} is frozen"
        self.note_stacks(last_chance=True)
        error = f"the node stalled for {limit:g} s: {which}"
        return self.journal.fail(StopReason.RANK, error, rank=frozen, stacks=True)

    def note_stacks(self, last_chance: bool) -> None:
        """Logs what each process of this node is doing."""
        self.journal.note("the stacks of this node's ranks:")
        for pid in descendants(os.getpid()):
            self.journal.note(stacks(pid, last_chance))


def missing_ranks(output: str) -> str:
    """Returns the last that Horovod says in an output about ranks that others wait for, or ""."""
    found = _MISSING.findall(output)
    if not found:
        return ""
    seconds, lines = found[-1]
    ranks = [line.partition(":")[0].rstrip("!") for line in lines.splitlines()]
    which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(ranks)}"
    return f"the other ranks have waited for {which} for more than {seconds} s, says Horovod"


def stacks(pid: int, last_chance: bool) -> str:
    """Returns what a process is doing: its Python stacks if they are available, otherwise what the kernel says.

    py-spy reads them from outside. Without it, a process that has a handler for SIGUSR1 is asked to write them itself,
    and one that is about to be ended anyway gets SIGABRT, on which Python's faulthandler writes them to its stderr.
    """
    if found := _spied(pid):
        return f"process {pid}: {found}"
    told = _kernel_says(pid)
    if _catches(pid, signal.SIGUSR1):
        send([pid], signal.SIGUSR1)
        return f"{told}; it was asked to write its stacks to stderr.txt (SIGUSR1)"
    if last_chance and _catches(pid, signal.SIGABRT):
        send([pid], signal.SIGABRT)
        send([pid], signal.SIGCONT)
        return f"{told}; it was told to write its stacks to stderr.txt and end (SIGABRT)"
    return told


def _spied(pid: int) -> str:
    import shutil  # takes 2 ms, and is hardly ever needed

    if (spy := shutil.which("py-spy")) is None:
        return ""
    command = [spy, "dump", "--nonblocking", "--pid", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=20)
    return found.stdout if found.returncode == 0 else ""


def _kernel_says(pid: int) -> str:
    words = []
    for name in ("comm", "wchan"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            words.append(file.read().strip())
    return f"process {pid}: {' in '.join(words)}, state {state(pid) or 'gone'}"


def _catches(pid: int, number: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        mask = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
        return bool(int(mask, 16) >> (number - 1) & 1)
    return False
