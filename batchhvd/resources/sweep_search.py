"""Making a sweep, opening it again, and the kind whose points a search chooses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define, evolve, field

from batchhvd.errors import ConflictError
from batchhvd.resources import sweep_record
from batchhvd.resources.job import Job
from batchhvd.resources.storage_account import find_account
from batchhvd.resources.sweep import Sweep
from batchhvd.resources.sweep_record import Definition
from batchhvd.resources.values.trial import TrialState
from batchhvd.sweeps import Point
from batchhvd.sweeps.template import check
from batchhvd.wire.facts.job_variables import POINT

if TYPE_CHECKING:
    from batchhvd.resources.experiment import Experiment
    from batchhvd.resources.share import FileShare
    from batchhvd.sweeps.study import Study


@define(eq=False)
class SearchSweep(Sweep):
    """A sweep whose points Optuna chooses, each when its trial begins; a trial that has no point yet has an empty one.

    Optuna's study lies beside the definition, as ``<name>.optuna.jsonl``. One program at a time keeps such a sweep.
    """

    _kept: Study | None = field(default=None, init=False, repr=False)

    @property
    def study(self) -> Study:
        """What Optuna knows, read from the share when it is first asked for."""
        if self._kept is None:
            from batchhvd.sweeps.study import Study

            search = self.definition.search
            assert search is not None
            self._kept = Study(_ShareFile.of(self), search, self.name)
        return self._kept

    def _points(self, jobs: Mapping[int, Job]) -> Sequence[Point]:
        """Returns what the jobs try, and what was chosen for those that have none yet."""
        tried = {number: json.loads(sweep_record.variable(job, POINT) or "{}") for number, job in jobs.items()}
        for number in sorted(tried):
            self.study.learn(number, tried[number])
        return [tried.get(number) or self.study.point(number) or {} for number in range(1, len(self) + 1)]

    def _chosen(self, number: int, point: Point) -> Point:
        return self.study.ask(number)

    def _look(self) -> None:
        super()._look()
        self._tell()

    def _submit_planned(self) -> list[Job]:
        self._tell()  # before anything is chosen
        return super()._submit_planned()

    def _tell(self) -> None:
        """Tells Optuna what has ended since it was last told."""
        search = self.definition.search
        assert search is not None
        new = [trial for trial in self._trials if trial.is_over and self.study.is_open(trial.number)]
        for trial in self._read(new):
            curve = trial.curve(search.metric) if trial.metrics else []
            self.study.tell(trial.number, curve, given_up=trial.state == TrialState.GIVEN_UP)


class _ShareFile:
    """A file in a share, as a study needs it."""

    def __init__(self, share: FileShare, path: str) -> None:
        self.share, self.path = share, path

    @classmethod
    def of(cls, sweep: Sweep) -> _ShareFile:
        """Returns the file beside a sweep's definition."""
        account, share, path = sweep.definition.place.split("/", 2)
        found = find_account(sweep.experiment.group, account).share(share)
        return cls(found, f"{path.removesuffix('.json')}.optuna.jsonl")

    def read(self) -> bytes:
        """Returns its content, b"" if it does not exist."""
        return b"".join(self.share._read_file(self.path)) if self.share.file_exists(self.path) else b""

    def write(self, content: bytes) -> None:
        """Replaces its content."""
        self.share._put(self.path, content)


def _sweep(experiment: Experiment, name: str, definition: Definition, unplaced: tuple[str, ...]) -> Sweep:
    kind = SearchSweep if definition.search else Sweep
    return kind(experiment, name, definition, unplaced)


def make(experiment: Experiment, name: str, definition: Definition) -> Sweep:
    """Returns a sweep after its definition was kept; nothing is submitted.

    Raises:
        ConflictError: there is a sweep of this name with another definition, or with other uploaded files.
        SpecError: the name is none for jobs, or the spec has places that nothing stands for.
    """
    sweep_record.check_name(name)
    unplaced = check(definition.spec, definition.names)
    kept = definition.keep(experiment, name)
    if not kept.same(definition):
        what = f"sweep {name!r} exists in experiment {experiment.name!r} with another definition"
        raise ConflictError(f"{what}. Open it with open_sweep(), or give another name", code="SweepExists").told(
            f"{what}. `batchhvd sweep show {name}` shows it; or give another --name"
        )
    made = _sweep(experiment, name, evolve(definition, place=kept.place), tuple(unplaced))
    changes = made._changes()
    if changes:
        what = f"sweep {name!r} exists, and since then its files have changed: {changes}. Nothing was started"
        raise ConflictError(
            f"{what}: give another name, or go on with both versions by open_sweep({name!r}).run()", code="SweepExists"
        ).told(f"{what}: give another --name, or go on with both versions by `batchhvd sweep resume {name}`")
    return made


def reopen(experiment: Experiment, name: str) -> Sweep:
    """Returns a sweep that was made before.

    Raises:
        NotFoundError: the experiment has no sweep of this name.
    """
    definition = sweep_record.find(experiment, name)
    return _sweep(experiment, name, definition, tuple(check(definition.spec, definition.names)))
