"""The Slurm of several nodes that ``bed`` makes, as the tests use it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

from tests.support import bed

CHECKOUT = Path(__file__).parents[2]


@frozen
class Bed:
    """Four nodes under Slurm on this machine; they see what lies below pytest's temporary folder.

    Attributes:
        folder: the bed's own folder.
    """

    folder: Path

    @property
    def bin(self) -> Path:
        """The folder of Slurm's commands."""
        return self.folder / "bin"

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes."""
        names: list[str] = json.loads((self.folder / "bed.json").read_text())["nodes"]
        return names

    def __call__(self, verb: str, *arguments: str) -> str:
        """Does what ``bed.py VERB`` does, such as ``node-kill``, and returns what it printed."""
        return _checked([sys.executable, bed.__file__, verb, str(self.folder), *arguments])

    def slurm(self, name: str, *arguments: str) -> str:
        """Runs one of Slurm's commands and returns what it printed."""
        return _checked([str(self.bin / name), *arguments])


def _checked(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
    return done.stdout


@contextlib.contextmanager
def beds(shared: Path, *options: str) -> Iterator[Bed]:
    """Brings a bed up for as long as the block takes; it goes then, however this process ends."""
    if problem := bed.obstacle():
        pytest.skip(f"Slurm {problem}")
    folder = Path(tempfile.mkdtemp(prefix="batchhvd-bed-"))
    shares = [f"--share={path}" for path in (shared, CHECKOUT)]  # a clone in /tmp would be out of the nodes' sight
    command = [sys.executable, bed.__file__, "hold", str(folder), *shares, *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        assert "idle" in line, f"the bed did not come up; see {folder}/log"
        yield Bed(folder)
        process.communicate(timeout=60)
    shutil.rmtree(folder)
