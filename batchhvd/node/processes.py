"""Processes of this machine: identified by id and start time, found by descent, and ended reliably."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from batchhvd.node.sandbox.libc import LIBC, LINUX

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36


def leave_to_ranks() -> None:
    """Takes no notice of the signals by which a batch system asks the ranks to save; it sends them to all processes.

    A handler, unlike ``SIG_IGN``, is not inherited by the ranks.
    """
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Asks the kernel to send this process a signal when its parent ends (Linux only)."""
    _prctl(_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Makes this process the parent of all orphans among its descendants (Linux only)."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if LINUX:
        LIBC.prctl(option, value, 0, 0, 0)


def stat(pid: int | str) -> list[str] | None:
    """Returns the fields of /proc/PID/stat after the name (state, parent, group, session, …), or None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def ticks(pid: int) -> int | None:
    """Returns when a process started, in the kernel's clock ticks, or None if it is gone or a zombie."""
    fields = stat(pid)
    return int(fields[19]) if fields and fields[0] != "Z" else None


def state(pid: int) -> str:
    """Returns the letter of a process's state (T: stopped), or "" if it has exited."""
    return (stat(pid) or [""])[0]


def descendants(root: int) -> list[int]:
    """Returns all living processes below one, children before grandchildren; none if there is no /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if LINUX else ():
        fields = stat(name) if name.isdigit() else None
        if fields and fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(name))
    found = list(children.get(root, ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def in_session(session: int, root: int) -> list[int]:
    """Returns the living processes below one that belong to a session."""
    return [pid for pid in descendants(root) if int((stat(pid) or ["0"] * 4)[3]) == session]


def send(pids: list[int], number: int) -> None:
    """Sends a signal to processes, some of which may have exited."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_all(root: int, seconds: float = 2.0) -> None:
    """Kills all descendants of a process, and collects its own children, until none is left."""
    deadline = time.monotonic() + seconds
    while (left := descendants(root)) and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)  # the kernel needs a moment


def cpu_seconds(pids: list[int]) -> float:
    """Returns the processor time that processes have used so far."""
    rate = os.sysconf("SC_CLK_TCK")
    return sum(int(fields[11]) + int(fields[12]) for fields in map(stat, pids) if fields) / rate


def memory_kills() -> int:
    """Returns how many processes the kernel has killed because memory ran out, since it started."""
    try:
        with open("/proc/vmstat", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
