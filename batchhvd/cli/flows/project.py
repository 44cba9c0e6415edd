"""The files of a new project: a script that trains on any number of ranks, its job.json, and how to run them."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from batchhvd.errors import SpecError

FILES = {"train.py": "train.py.txt", "job.json": "job.json", "README.md": "README.md"}
"""The files of a project, each with its template in `templates/`."""


def write(folder: Path) -> list[Path]:
    """Writes the files into a folder, which is made if it is missing, and returns their paths.

    Raises:
        SpecError: one of them is there already; nothing is written.
    """
    targets = [folder / name for name in FILES]
    there = [target.name for target in targets if target.exists() or target.is_symlink()]
    if there:
        raise SpecError(
            f"{folder} has {' and '.join(there)} already; nothing was written", remedy="name another folder"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for target, source in zip(targets, FILES.values(), strict=True):
        target.write_text(text(source), encoding="utf-8")
    return targets


def text(source: str) -> str:
    """Returns the content of a template."""
    return files(__package__).joinpath("templates").joinpath(source).read_text(encoding="utf-8")
