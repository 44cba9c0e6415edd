"""Creates what a task needs on the disk before it starts: its mounts (symbolic links), its directories and its logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from batchhvd.engines.base import Task


@frozen
class TaskLayout:
    """A task with what must be on the disk before it starts.

    Attributes:
        task: what the engine runs.
        links: the symbolic links to make, and their targets.
        directories: the directories to make: of the logs and of the outputs.
    """

    task: Task
    links: Mapping[Path, Path]
    directories: tuple[Path, ...]


def lay(layout: TaskLayout) -> None:
    """Makes the links and directories of a task; what exists already stays."""
    for link, target in layout.links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)
    folder = Path(layout.task.folder)
    for directory in (*layout.directories, folder / "mounts", folder / "cluster", folder / "shared"):
        directory.mkdir(parents=True, exist_ok=True)


def begin_logs(logs: Path) -> None:
    """Makes a job's two logs, so that they are listed and followed from the moment that the job is said to run."""
    for name in ("stdout.txt", "stderr.txt"):
        (logs / name).touch()
