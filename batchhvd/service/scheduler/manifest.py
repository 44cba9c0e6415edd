"""Seals a job's outputs: the size and SHA-256 of every file, in a manifest beside the logs' directory."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from batchhvd.service.store import durable

NAME = "manifest.json"
_BLOCK = 1 << 20


class SealingStoppedError(Exception):
    """The service ends before the outputs are sealed; the next one seals them."""


def seal(directories: Iterable[Path], job: str, time: str, stops: Callable[[], bool] = lambda: False) -> None:
    """Writes ``manifest.json`` into each of a job's own directories, naming every file below it.

    ``{"job", "sealed", "files": {"stdouterr/stdout.txt": {"size", "sha256"}, …}}``; paths are relative to the manifest.

    Args:
        directories: the directories.
        job: the job's id.
        time: the present time as documents show it.
        stops: asked all the time whether to stop.

    Raises:
        SealingStoppedError: ``stops`` said so.
    """
    for directory in directories:
        files = {str(path.relative_to(directory)): _facts(path, stops) for path in _files(directory)}
        document = {"job": job, "sealed": time, "files": dict(sorted(files.items()))}
        durable.replace(directory / NAME, json.dumps(document, indent=1) + "\n")


def _files(directory: Path) -> Iterator[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    for place, _, names in os.walk(directory):
        for name in names:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink() and path.parent / name != directory / NAME:
                yield path


def _facts(path: Path, stops: Callable[[], bool]) -> dict[str, int | str]:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            if stops():
                raise SealingStoppedError
            digest.update(block)
            size += len(block)
    return {"size": size, "sha256": digest.hexdigest()}
