"""Removes what nodes that were killed have left with the container engine: only our own, by label and by name."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from pathlib import Path

from batchhvd.node.container.engine import ContainerEngine, quiet_environment
from batchhvd.node.container.image import OURS
from batchhvd.node.folder.durable import DamagedRecordError
from batchhvd.node.folder.records import has_ended, read_node

_LONG = 120.0  # seconds for a command of the engine
_TRIES, _PAUSE = 5, 0.3


def ask(words: list[str]) -> tuple[int, str]:
    """Runs a command of an engine; returns its exit code and what it wrote. Only where no supervisor is at work."""
    try:
        done = subprocess.run(
            words,
            env=quiet_environment(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LONG,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 125, str(error)
    return done.returncode, done.stdout if done.returncode == 0 else done.stdout + done.stderr


def remove_container(engine: ContainerEngine, name: str) -> None:
    """Removes a container; tries again, since the engine may still be noticing that its processes were killed."""
    for _ in range(_TRIES):
        code, told = ask(engine.remove(name))
        if code == 0 or "no such container" in told.lower() or "no instance" in told.lower():
            return
        time.sleep(_PAUSE)


def lock_file() -> Path:
    """Returns the file that is locked while an image is brought, used for the first time, or removed."""
    runtime = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime) if runtime and os.access(runtime, os.W_OK) else Path.home() / ".cache"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "batchhvd-containers.lock"


def try_lock(descriptor: int) -> bool:
    """Locks the open file if nobody else has it, and says whether it is locked now."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def is_over(label: str) -> bool:
    """Says whether the node that a container's label names has ended, or its task's folder is gone."""
    folder, _, index = label.rpartition(":")
    if not folder.startswith("/") or not index.isdecimal():
        return False  # not ours
    try:
        return not (Path(folder) / "task.json").exists() or has_ended(read_node(Path(folder), int(index)))
    except (DamagedRecordError, OSError):
        return False


def reap(engine: ContainerEngine, root: str = "") -> list[str]:
    """Removes the containers of nodes that have ended, and returns their names.

    Args:
        engine: the engine.
        root: only tasks below this folder; "" for all of them.
    """
    code, told = ask(engine.ours())
    pairs = (line.partition(" ") for line in told.splitlines()) if code == 0 else ()
    over = [name for name, _, label in pairs if label.startswith(root) and is_over(label)]
    for name in over:
        remove_container(engine, name)
    return over


def forget_images(engine: ContainerEngine) -> None:
    """Removes the images that jobs have brought and that no container uses; the caller holds the lock."""
    code, told = ask(engine.images(OURS))
    for name in told.split() if code == 0 else ():
        if name.startswith(f"{OURS}:"):
            ask(engine.remove_image(name))  # refused if a container uses it
