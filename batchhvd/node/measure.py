"""Measures what the ranks of a node use of their machine: processors, memory, graphics processors.

    python3 -I -S node-DIGEST.pyz FOLDER INDEX --enter --measure SECONDS

It prints one line of JSON for each look, until the node ends or nobody reads any more. The first comes after a moment,
since the use of a processor is what was used between two looks.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from batchhvd.node.folder.durable import DamagedRecordError
from batchhvd.node.folder.records import read_node
from batchhvd.node.processes import cpu_seconds, descendants, die_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from batchhvd.node.folder.document import NodeRecord

_FIRST = 0.5  # seconds to the first look, at most
_PATIENCE = 10.0  # seconds for nvidia-smi, which is slow where many GPUs wake up
_GPUS = ("index", "uuid", "utilization.gpu", "memory.used", "memory.total")
_MIB = 1 << 20


def measure(folder: Path, index: int, seconds: float, runner: int) -> int:
    """Prints a line for each look; returns the exit code.

    Args:
        folder: the task's folder.
        index: the node's number, from 0.
        seconds: the time between two looks.
        runner: a descriptor that can be read from when the node has ended.
    """
    die_with_parent(os.getppid(), signal.SIGTERM)
    before: dict[int, float] = {}
    before_at = time.monotonic()
    pause = 0.0
    while not select.select([runner], [], [], pause)[0]:
        with contextlib.suppress(DamagedRecordError):
            record = read_node(folder, index)
            if record is not None:
                now = time.monotonic()
                groups = _groups(record)
                used = {pid: cpu_seconds([pid]) for pids in groups.values() for pid in pids}
                if before and not _said(_line(record, groups, _shares(used, before, now - before_at))):
                    break
                before, before_at = used, now
        pause = seconds if pause else min(seconds, _FIRST)
    return 0


def _said(line: dict[str, object]) -> bool:
    """Prints a line; says whether somebody reads it."""
    try:
        print(json.dumps(line), flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more at its end
        return False
    return True


def _groups(record: NodeRecord) -> dict[int, list[int]]:
    """Returns the living processes of each rank; of a node that is being prepared, those of rank -1."""
    living = {rank["rank"]: rank["pid"] for rank in record["ranks"] if rank["ended"] is None}
    if not living and not record["ranks"]:
        return {-1: descendants(record["pid"] or 0)}
    return {rank: [pid, *descendants(pid)] for rank, pid in living.items()}


def _shares(used: dict[int, float], before: dict[int, float], seconds: float) -> dict[int, float]:
    """Returns how many processors each process has used; of one that is new, all that it has used is new too."""
    return {pid: max(0.0, total - before.get(pid, 0.0)) / seconds for pid, total in used.items()}


def _line(record: NodeRecord, groups: dict[int, list[int]], shares: dict[int, float]) -> dict[str, object]:
    cards, users = _gpus()
    ranks = [
        {
            "rank": rank,
            "cpu": round(sum(shares.get(pid, 0.0) for pid in pids), 3),
            "memory": sum(map(_memory, pids)),
            "processes": len(pids),
            "gpus": sorted({card for pid in pids for card in users.get(pid, ())}),
        }
        for rank, pids in sorted(groups.items())
    ]
    return {"node": record["node"], "state": record["state"], "cpus": _cpus(), "ranks": ranks, "gpus": cards}


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory(pid: int) -> int:
    """Returns the bytes of memory that a process uses; what it shares with others counts in part."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))
    with contextlib.suppress(OSError, ValueError, IndexError):  # another user's, or an old kernel
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _gpus() -> tuple[list[dict[str, int]], dict[int, list[int]]]:
    """Returns the machine's GPUs, and which of them each process uses; none without nvidia-smi."""
    rows = _asked("gpu", _GPUS)
    numbers = {row[1]: int(row[0]) for row in rows}
    cards = [
        {"gpu": int(number), "use": _number(use), "memory": _number(used) * _MIB, "total": _number(total) * _MIB}
        for number, _, use, used, total in rows
    ]
    users: dict[int, list[int]] = {}
    for pid, uuid in _asked("compute-apps", ("pid", "gpu_uuid")) if rows else ():
        if uuid in numbers and pid.isdecimal():
            users.setdefault(int(pid), []).append(numbers[uuid])
    return cards, users


def _asked(what: str, names: tuple[str, ...]) -> list[list[str]]:
    if shutil.which("nvidia-smi") is None:
        return []
    words = ["nvidia-smi", f"--query-{what}={','.join(names)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == len(names) and row[0].isdecimal()]


def _number(text: str) -> int:
    """Returns a number; 0 for what a GPU does not tell, such as ``[N/A]`` of one that is divided."""
    return int(text) if text.isdecimal() else 0
