"""Hands tasks to sbatch so that each runs once, whatever is lost on the way.

An answer of sbatch can get lost: it takes longer than anyone waits, or the service is killed. The job may be in Slurm's
queue then, or not, or not yet. Three things keep it from running twice: nothing is sent again before Slurm has been
asked for a job in the task's folder; nothing is sent again at once; and the first job that begins in a folder claims
it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from batchhvd.engines.slurm.answers import SlurmJob, is_doubtful, is_passing
from batchhvd.engines.slurm.commands import SlurmCommands
from batchhvd.engines.slurm.run import claimed, read_submission
from batchhvd.engines.slurm.watch import JobWatch
from batchhvd.errors import EngineBusyError, EngineError
from batchhvd.node.folder import durable

_SCRIPT = "job.sbatch"  # in a task's folder from before sbatch is called until it is known that it refused
_ARRAY = "#array "  # ... which is then a line with the index and the directory of a job array
LOST = "the answer of sbatch was lost"
Listing = Callable[[], Mapping[str, SlurmJob] | None]
_GIVEN_UP = 124  # the exit code of a command that took too long


class Submitter:
    """Hands tasks to sbatch.

    Args:
        commands: Slurm's commands.
        watch: what knows the jobs in Slurm.
        doubt: for how many seconds after a lost answer a job may still turn up in Slurm's queue.
    """

    def __init__(self, commands: SlurmCommands, watch: JobWatch, doubt: float) -> None:
        self._commands, self._watch, self._doubt = commands, watch, doubt
        self._doubted: dict[Path, float] = {}  # when an answer got lost, by folder

    def submit(self, folder: Path, write: Callable[[], str]) -> str:
        """Returns the number of a task's job, which may have been submitted before.

        Args:
            folder: the task's folder.
            write: prepares the folder and returns the batch script.

        Raises:
            EngineBusyError: Slurm takes no jobs at the moment, or it is not known whether it took this one.
            EngineError: Slurm rejected the job; the message contains Slurm's.
        """
        return self.find(folder) or self._send(folder, write())

    def find(self, folder: Path, listing: Listing | None = None) -> str | None:
        """Returns the number of the job of a task's folder, or None if Slurm has none.

        Args:
            folder: the folder.
            listing: returns all jobs of this user, as ``JobWatch.mine``, if they have been asked for already.

        Raises:
            EngineBusyError: it is not known whether Slurm has one.
        """
        known = read_submission(folder)
        number = claimed(folder) or (known["job"] if known else None)
        if number is None and (folder / _SCRIPT).exists():
            number = self._sought(folder, listing or self._watch.mine)
        return number

    def send_array(self, folders: Sequence[Path], directory: Path, text: str) -> str:
        """Submits a job array and returns its number; its elements are numbered from 0 in the order of their folders.

        Args:
            folders: the folders of its tasks, which have been prepared.
            directory: the array's own, in which it runs.
            text: the batch script.

        Raises:
            EngineBusyError: as ``submit``; its text begins with ``LOST`` if Slurm may have taken it.
            EngineError: Slurm rejected it.
        """
        for index, folder in enumerate(folders):
            durable.replace(folder / _SCRIPT, f"{_ARRAY}{index} {directory}".encode(), synced=False)
        os.sync()  # all at once, since one by one takes a second for each hundred
        return self._sent(folders, text)

    def _sought(self, folder: Path, listing: Listing) -> str | None:
        """Looks in Slurm for the job of a submission whose answer is not known: it runs in the folder."""
        found, (directory, element) = listing(), _place(folder)
        if found is None:
            raise _busy("Slurm's controller does not answer, and it is not known whether it has accepted the job")
        mine = (number for number, job in found.items() if job.folder == directory)
        numbers = [number for number in mine if number.endswith(element)]
        if not numbers and self._age(folder) < self._doubt:
            raise _busy(f"{LOST}, and Slurm does not list the job yet")
        return min(numbers, key=len, default=None)

    def _age(self, folder: Path) -> float:
        """Returns how many seconds ago an answer got lost; the script's time counts after a restart."""
        since = self._doubted.get(folder)
        return time.time() - (folder / _SCRIPT).stat().st_mtime if since is None else time.monotonic() - since

    def _send(self, folder: Path, text: str) -> str:
        durable.replace(folder / _SCRIPT, text.encode())
        return self._sent([folder], text)

    def _sent(self, folders: Sequence[Path], text: str) -> str:
        answer = self._commands.run("sbatch", "--parsable", text=text)
        if not answer.returncode:
            for folder in folders:
                self._doubted.pop(folder, None)
            return answer.stdout.strip().partition(";")[0]
        told, code = answer.stderr.strip(), answer.returncode
        if code == _GIVEN_UP or is_doubtful(told):
            self._doubted |= dict.fromkeys(folders, time.monotonic())
            raise _busy(f"{LOST}: {_last(told)}")
        for folder in folders:
            os.unlink(folder / _SCRIPT)
        if is_passing(told):
            raise _busy(f"Slurm takes no job at the moment: {_last(told)}")
        message = f"sbatch rejected the job: {told}"
        raise EngineError(message, engine="slurm", command="sbatch", exit_code=code, output=told)


def _place(folder: Path) -> tuple[str, str]:
    """Returns the directory in which the job of a folder runs, and the end of its number."""
    begin = (folder / _SCRIPT).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    if not begin.startswith(_ARRAY):
        return str(folder), ""
    index, _, directory = begin.removeprefix(_ARRAY).partition(" ")
    return directory, f"_{index}"


def _busy(text: str) -> EngineBusyError:
    return EngineBusyError(text, engine="slurm", command="sbatch")


def _last(told: str) -> str:
    """Returns what sbatch said, in one line."""
    lines = [line.removeprefix("sbatch: ").removeprefix("error: ").strip() for line in told.splitlines()]
    return "; ".join(filter(None, lines)) or "it said nothing"
