"""The files of a program's folder, less what ``.gitignore`` and ``.batchhvdignore`` exclude, and their digest.

Git itself decides what its files exclude. It is asked with an empty index of its own, so that the folder need not be a
repository.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from batchhvd.errors import SpecError
from batchhvd.transfer.checksum import md5_of, size_of, usable
from batchhvd.transfer.sources import Sources

IGNORE = ".batchhvdignore"
RESULTS = "batchhvd-results"
"""The folder into which the command line downloads results; it is not part of the program."""

_ALWAYS = (
    RESULTS,
    ".git",
    "__pycache__",
    ".venv",
    "node_modules",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
)
_MOST_FILES, _MOST_BYTES = 5_000, 500_000_000


@frozen
class CodeFolder:
    """A program's files.

    Attributes:
        files: each file by its path below the folder.
        digest: what their names and content are, as a short text.
    """

    files: dict[str, Path]
    digest: str


def read_folder(folder: Path) -> CodeFolder:
    """Returns the files of a folder.

    Raises:
        SpecError: it is not a folder, or holds more than a program would.
    """
    if not folder.is_dir():
        raise SpecError(f"there is no folder {str(folder)!r} here", remedy="give the folder that holds the program")
    found = Sources()
    for name in sorted(_without_roots(folder, _names(folder))):
        found.add(folder / name, name)
    found.warn()
    files, total = found.files, 0
    for path in files.values():
        with usable(path, "read"):
            total += size_of(path)
    if len(files) > _MOST_FILES or total > _MOST_BYTES:
        raise SpecError(
            f"{folder} holds {len(files)} files of {total / 1e6:.0f} MB, which is more than a program",
            remedy=f"name what is not needed in {folder / IGNORE}, or give another folder; upload data by itself",
        )
    digest = hashlib.sha256()
    for name, path in files.items():
        with usable(path, "read"):
            digest.update(f"{name}\0{md5_of(path).hex()}\0".encode("utf-8", errors="surrogateescape"))
    return CodeFolder(files, digest.hexdigest()[:16])


def _without_roots(folder: Path, names: Sequence[str]) -> list[str]:
    """Returns paths without those in the root of a local service: it holds shares, logs and a token."""
    ends = [name for name in names if posixpath.basename(name) == "state.sqlite"]
    roots = {posixpath.dirname(name) for name in ends if (folder / posixpath.dirname(name) / "token").is_file()}
    return [name for name in names if not any(name == root or name.startswith(f"{root}/") for root in roots if root)]


def _names(folder: Path) -> list[str]:
    """Returns the paths of the files that are not excluded."""
    try:
        return _kept_by_git(folder)
    except (OSError, subprocess.CalledProcessError):
        if any((folder / name).exists() for name in (".gitignore", IGNORE)):
            warnings.warn(f"git is not there to read .gitignore and {IGNORE}: all files are taken", stacklevel=3)
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _ALWAYS]
        found += [Path(place, name).relative_to(folder).as_posix() for name in files]
    return found


def _kept_by_git(folder: Path) -> list[str]:
    excluded = [f"--exclude={name}/" for name in _ALWAYS]
    own = [f"--exclude-from={folder.absolute() / IGNORE}"] if (folder / IGNORE).is_file() else []
    listing = ["ls-files", "--others", "-z", "--exclude-per-directory=.gitignore", *excluded, *own]
    # A hook of git sets variables that would name another index.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    with tempfile.TemporaryDirectory() as place:
        git = ["git", f"--git-dir={place}", f"--work-tree={folder.absolute()}"]
        for command in (["init", "--quiet"], listing):
            done = subprocess.run([*git, *command], check=True, capture_output=True, cwd=folder, env=environment)
    found = [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
    inner = [name for name in found if name.endswith("/")]  # repositories of their own, which git does not enter
    nested = [f"{name}{file}" for name in inner for file in _kept_by_git(folder / name)]
    return [*(name for name in found if not name.endswith("/")), *nested]
