"""Hands many tasks to Slurm with few calls: those that are alike become the elements of a job array."""

from __future__ import annotations

import functools
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from attrs import define, field

from batchhvd.engines.base import Task
from batchhvd.engines.slurm.submission import LOST, Submitter
from batchhvd.engines.slurm.watch import JobWatch
from batchhvd.errors import EngineBusyError, EngineError
from batchhvd.node import archive

LARGEST = 1000
"""Elements of an array: one less than Slurm's MaxArraySize is by default."""
_MEMBERS = "members"
Result = str | EngineError


@define
class ArraySubmitter:
    """Submits tasks, many at a time.

    If Slurm does not take an array, it may still take a smaller one (``MaxSubmitJobs``, ``MaxArraySize``): it is halved
    until it is taken, down to single jobs, and grows again later.

    Attributes:
        submitter: submits single tasks.
        watch: what knows the jobs in Slurm.
        one: submits one task and returns its handle.
        alike: returns a value that is equal for tasks of one array.
        write: prepares the folders of tasks and returns the script of their array, which has a directory of its own.
        keep: keeps the number of the job of a task, and returns its handle.
    """

    submitter: Submitter
    watch: JobWatch
    one: Callable[[Task], str]
    alike: Callable[[Task], object]
    write: Callable[[Sequence[Task], Path], str]
    keep: Callable[[Task, str], str]
    _most: int = field(default=LARGEST, init=False)

    def submit(self, tasks: Sequence[Task]) -> dict[str, Result]:
        """Submits tasks and returns the handle of each, or why it has none, by its folder."""
        listing = functools.cache(self.watch.mine)
        found: dict[str, Result] = {}
        fresh: dict[object, list[Task]] = {}
        for task in tasks:
            try:
                number = self.submitter.find(Path(task.folder), listing)
                if number:
                    found[task.folder] = self.keep(task, number)
                else:
                    fresh.setdefault(self.alike(task), []).append(task)
            except EngineError as error:
                found[task.folder] = error
        for group in fresh.values():
            found |= dict(self._send(group))
        return found

    def _send(self, tasks: Sequence[Task]) -> Iterator[tuple[str, Result]]:
        """Submits tasks that are alike."""
        left = list(tasks)
        while left:
            some = left[: self._most]
            try:
                handles = self._array(some) if len(some) > 1 else [self.one(some[0])]
            except EngineBusyError as error:
                self._most = max(1, len(some) // 2)
                if len(some) > 1 and len(left) == len(tasks) and not str(error).startswith(LOST):
                    continue
                yield from ((task.folder, error) for task in left)
                return  # what was taken is told now, and the rest is submitted later
            except EngineError as error:
                if len(some) > 1:  # for all, or for one element, or for arrays: each is asked for by itself
                    self._most = len(some) // 2
                    continue
                handles = [error]
            yield from ((task.folder, handle) for task, handle in zip(some, handles, strict=True))
            left = left[len(some) :]
        self._most = min(2 * self._most, LARGEST)

    def _array(self, tasks: Sequence[Task]) -> Sequence[Result]:
        folders = [Path(task.folder) for task in tasks]
        place = Path(os.path.commonpath(folders)) / "arrays"
        _tidy(place)
        directory = place / uuid.uuid4().hex[:12]
        directory.mkdir(parents=True)
        (directory / _MEMBERS).write_text("\n".join(map(str, folders)), encoding="utf-8")
        archive.write(directory)
        try:
            number = self.submitter.send_array(folders, directory, self.write(tasks, directory))
        except EngineError as error:
            if not str(error).startswith(LOST):
                shutil.rmtree(directory)
            raise
        return [self.keep(task, f"{number}_{index}") for index, task in enumerate(tasks)]


def _tidy(place: Path) -> None:
    """Removes the directories of arrays whose tasks are all deleted."""
    for directory in place.iterdir() if place.is_dir() else ():
        members = directory / _MEMBERS
        if members.exists() and not any(map(os.path.exists, _lines(members))):
            shutil.rmtree(directory, ignore_errors=True)


def _lines(path: Path) -> Iterable[str]:
    return path.read_text(encoding="utf-8").splitlines()
