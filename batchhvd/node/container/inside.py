"""Finds a running container from outside: its first process, whose namespaces and variables are the container's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from batchhvd.node.container.engine import ContainerEngine

#: What a container has of its own; the network is the machine's. The files come last, since /proc goes with them.
NAMESPACES = ("ipc", "uts", "pid", "mnt")
_SECONDS = 20.0  # that an engine may take to answer


def why_closed(engine: str) -> str:
    """Returns why nobody can enter a container of an engine from here, "" if that is possible."""
    if engine == "apptainer":
        return "an apptainer instance is not entered from outside"
    return "" if os.geteuid() == 0 else "only root can enter the namespaces of a container"


def first_process(engine: ContainerEngine, name: str) -> int:
    """Returns the process id of a container's first process, 0 if there is none.

    Args:
        engine: the engine, which is asked with this process's own variables.
        name: the container's name.
    """
    words = [engine.name, "inspect", "--type", "container", "--format", "{{.State.Pid}}", name]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    told = done.stdout.strip()
    return int(told) if done.returncode == 0 and told.isdecimal() else 0


def variables(pid: int) -> dict[str, str]:
    """Returns the variables of a container's first process, those of its image among them."""
    pairs = (entry.partition(b"=") for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, mark, value in pairs if mark}


def opened(pid: int) -> list[int]:
    """Returns descriptors of the namespaces of a process, in the order in which they are to be entered."""
    return [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in NAMESPACES]
