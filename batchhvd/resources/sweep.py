"""A sweep: many jobs that try the points of a parameter space."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from typing import TYPE_CHECKING, Any

from attrs import define, field

from batchhvd.errors import SpecError
from batchhvd.resources import runs, sweep_record
from batchhvd.resources.job import Job
from batchhvd.resources.storage_account import find_account
from batchhvd.resources.sweep_record import Definition
from batchhvd.resources.values.trial import Trial, TrialState, state_of
from batchhvd.sweeps import Point
from batchhvd.sweeps.stopping import goal_of, signed
from batchhvd.sweeps.template import fill
from batchhvd.wire import bulk
from batchhvd.wire.facts.documents import Body
from batchhvd.wire.facts.job_variables import CONTENT, SWEEP
from batchhvd.wire.waiting import Pace, Report, SystemClock, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

    from batchhvd.resources.experiment import Experiment
    from batchhvd.resources.storage_account import StorageAccount

_AT_A_TIME = 8  # requests
_LONG_LOOK = 1.0  # seconds
_PATIENCE = 600.0  # seconds for the service to accept a job
_PACE = Pace(first=0.3, factor=1.3, longest=2.0)


@define(eq=False)
class Sweep:
    """Jobs that try the points of a space, one job for each point.

    The jobs are called after the sweep: ``digits_0001`` is the first trial of ``digits``. Which points there are stands
    in a file beside the logs, so that another process can go on: ``experiment.open_sweep("digits").run()``.

    Iterating yields the trials as they stood when they were last read.

    Attributes:
        experiment: where its jobs are.
        name: its name.
        definition: what it tries, and by which rule trials are given up.
        unplaced: names of the space that the job's spec has no place for; their values are only in variables.
    """

    experiment: Experiment
    name: str
    definition: Definition
    unplaced: tuple[str, ...] = ()
    _trials: list[Trial] = field(factory=list, init=False, repr=False)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self.definition)

    def __repr__(self) -> str:
        return f"Sweep({self.name!r}, {self.describe()})"

    def refresh(self) -> Self:
        """Reads how the trials stand; what they have reported is read when it is asked for."""
        before = {trial.number: trial for trial in self._trials}
        jobs = sweep_record.latest(self.name, self._jobs(), self.definition.place)
        points = enumerate(self._points(jobs), 1)
        self._trials = [self._trial(number, point, jobs.get(number), before.get(number)) for number, point in points]
        return self

    def _points(self, jobs: Mapping[int, Job]) -> Sequence[Point]:
        """Returns the point of each trial; the jobs that there are may know more than the definition."""
        return self.definition.points

    def run(self, *, timeout: float | None = None, report: Report | None = None) -> Self:
        """Submits the trials that have no job yet, gives up those that are behind, and waits until all are over.

        Ends at once what another process has left: a second ``run`` goes on where the first was interrupted, and starts
        no point twice. Ctrl-C ends the wait; jobs that were submitted go on.

        Args:
            timeout: seconds, or None for a week.
            report: is called with a line each time that the counts change.

        Raises:
            SpecError: the rule's metric is none that the trainings report; or secrets are missing.
            WaitTimeoutError: the time is over.
        """
        self._warn_of_changes()
        return wait_until(
            self._step,
            Sweep._is_over,
            timeout=timeout,
            describe=Sweep.describe,
            what=f"sweep {self.name!r} to be over",
            clock=self.experiment._session.clock,
            pace=_PACE,
            report=report,
        )

    def submit(self) -> Self:
        """Submits the trials that have no job yet, as many as may run at once, and returns without waiting."""
        self._warn_of_changes()
        self._submit_planned()
        return self

    def best(self, metric: str | None = None, *, goal: str | None = None) -> Trial:
        """Returns the trial with the best value of a metric after any epoch.

        Args:
            metric: the metric, as the training names it; None for that of the search or the rule.
            goal: ``"max"`` or ``"min"``; None for that of the search or the rule if it is their metric, else ``"min"``
                for losses and errors.

        Raises:
            SpecError: no metric is given and there is no rule, or no trial has reported it.
        """
        rule = self.definition.search or self.definition.rule
        metric = metric or (rule.metric if rule else None)
        if metric is None:
            raise SpecError("best needs a metric", remedy="give one that the training reports, such as val_accuracy")
        goal = goal or (rule.goal if rule and rule.metric == metric else goal_of(metric))
        if goal not in ("max", "min"):
            raise SpecError(f"goal must be max or min, not {goal!r}", remedy="max for an accuracy, min for a loss")
        found = {trial.number: trial.curve(metric) for trial in self._read(self._known())}
        best = {number: max((signed(value, goal) for value in curve), default=-inf) for number, curve in found.items()}
        if max(best.values()) == -inf:
            raise SpecError(f"no trial of {self.name!r} has reported {metric!r} yet", remedy="wait for the first epoch")
        return max(self._known(), key=lambda trial: best[trial.number])

    def retry(self) -> list[Job]:
        """Submits the trials that failed again, under their next run's names, and returns the new jobs."""
        self._warn_of_changes()
        failed = [trial for trial in self._trials if trial.state == TrialState.FAILED]
        return self._submit([(trial.number, trial.point, trial.job) for trial in failed])

    def stop(self) -> Self:
        """Ends all trials that run or wait, and waits until they have ended; planned ones stay planned."""
        waiting = (TrialState.QUEUED, TrialState.RUNNING)
        self._end([trial.job for trial in self.refresh()._trials if trial.job and trial.state in waiting])
        return self.refresh()

    def table(self) -> list[dict[str, object]]:
        """Returns a row for each trial: number, values, state, epochs, last metrics, seconds."""
        return [trial.row() for trial in self._read(self._known())]

    def to_dataframe(self) -> Any:
        """Returns the table as a pandas DataFrame; pandas comes with ``batchhvd[notebook]``."""
        import pandas

        return pandas.DataFrame(self.table()).set_index("trial")

    def describe(self) -> str:
        """Returns how many trials stand how, in one line."""
        states = [trial.state for trial in self._trials]
        counts = [f"{states.count(state)} {state}" for state in TrialState if states.count(state)]
        return f"{len(self)} trials: {', '.join(counts)}" if counts else f"{len(self)} trials"

    def _repr_html_(self) -> str:
        from batchhvd.views.notebook import rows

        return rows(self.table())

    def _jobs(self) -> Iterator[Job]:
        with self.experiment._asking("listed with its jobs"):
            for document in bulk.list_jobs(self.experiment._connection, self.experiment.id):
                yield Job(self.experiment, document["name"])._load(document)

    def _read(self, trials: list[Trial]) -> list[Trial]:
        """Reads what trials have reported, several at a time."""
        with ThreadPoolExecutor(_AT_A_TIME, "batchhvd sweep") as pool:
            list(pool.map(lambda trial: trial.metrics, trials))
        return trials

    def _known(self) -> list[Trial]:
        return self._trials or self.refresh()._trials

    def _is_over(self) -> bool:
        return all(trial.is_over for trial in self._trials)

    def _step(self) -> Self:
        """Does what there is to do now; after a look at thousands of jobs the service is left alone for as long."""
        clock = self.experiment._session.clock or SystemClock()
        began = clock.monotonic()
        self._look()
        took = clock.monotonic() - began
        if took > _LONG_LOOK and not self._is_over():
            clock.sleep(2 * took)
        return self

    def _look(self) -> None:
        self.refresh()
        lost = self._lost()
        if lost:
            self._end([trial.job for trial in lost if trial.job])
            self.refresh()
        self._submit_planned()

    def _submit_planned(self) -> list[Job]:
        planned = [(trial.number, trial.point, None) for trial in self._trials if trial.state == TrialState.PLANNED]
        busy = sum(trial.state in (TrialState.QUEUED, TrialState.RUNNING) for trial in self._trials)
        room = len(planned) if self.definition.at_once is None else max(0, self.definition.at_once - busy)
        chosen = [(number, self._chosen(number, point), None) for number, point, _ in planned[:room]]
        jobs = self._submit(chosen) if chosen else []
        for (number, point, _), job in zip(chosen, jobs, strict=True):
            self._trials[number - 1] = Trial(number, point, TrialState.QUEUED, job)  # the next look says more
        return jobs

    def _chosen(self, number: int, point: Point) -> Point:
        """Returns the point that a trial tries, now that it begins."""
        return point

    def _lost(self) -> list[Trial]:
        """Returns the running trials that the rule gives up."""
        rule = self.definition.rule
        if rule is None:
            return []
        curves = {trial.number: trial.curve(rule.metric) for trial in self._read(self._trials) if trial.metrics}
        lost = rule.lost(curves)
        return [trial for trial in self._trials if trial.number in lost and trial.state == TrialState.RUNNING]

    def _trial(self, number: int, point: Point, job: Job | None, before: Trial | None) -> Trial:
        state = state_of(job)
        if before is not None and before.is_over and before.job and job and before.job.name == job.name:
            return before
        # A job that ends while its log is read has the state of before; the next look gives both.
        return Trial(number, point, state, job)

    def _submit(self, trials: Sequence[tuple[int, Point, Job | None]]) -> list[Job]:
        """Creates the jobs of some trials; a job that is there already is not made twice."""
        body = self._bodies(self._accounts())
        if len(trials) > 1 and self._knows_bulk():
            return self._submit_all(body(*trial) for trial in trials)
        with ThreadPoolExecutor(_AT_A_TIME, "batchhvd sweep") as pool:
            return list(pool.map(lambda trial: self._submit_one(*body(*trial)), trials))

    def _accounts(self) -> dict[str, StorageAccount]:
        names = self.definition.spec._accounts()
        return {account: find_account(self.experiment.group, account) for account in names}

    def _changes(self) -> str:
        """Says which uploaded files were others when trials ran that are there already; "" if none were."""
        now = runs.content(self.definition.spec, self._accounts())
        noted = [sweep_record.variable(trial.job, CONTENT) for trial in self.refresh()._trials if trial.job]
        changed = [files for text in noted if text and (files := runs.changed(json.loads(text), now))]
        names = sorted({name for files in changed for name in files})
        return f"{len(changed)} trials ran an earlier version of {', '.join(names)}" if changed else ""

    def _warn_of_changes(self) -> None:
        changes = self._changes()
        if changes:
            warnings.warn(f"sweep {self.name!r}: {changes}; they stay as they are", UserWarning, stacklevel=3)

    def _submit_one(self, name: str, body: Body) -> Job:
        return Job(self.experiment, name)._create(body, _PATIENCE)

    def _submit_all(self, jobs: Iterable[tuple[str, Body]]) -> list[Job]:
        """Creates jobs with few requests; the service works on some while the next ones are written."""
        made: list[Job] = []

        def noted() -> Iterator[tuple[str, Body]]:
            for name, body in jobs:
                made.append(Job(self.experiment, name))
                yield name, body

        with self.experiment._asking("given the jobs of a sweep"):
            bulk.create_jobs(self.experiment._connection, self.experiment.id, noted())
        return made

    def _knows_bulk(self) -> bool:
        """Says whether the service takes many jobs with one request: its answers name it."""
        known: list[bool] = []
        with self.experiment._asking("read"):
            self.experiment._connection.batchai.experiments.get(
                *self.experiment._path,
                raw_response_hook=lambda answer: known.append("x-batchhvd-service" in answer.http_response.headers),
            )
        return known[-1]

    def _bodies(self, accounts: dict[str, StorageAccount]) -> Callable[[int, Point, Job | None], tuple[str, Body]]:
        """Returns what gives name and body of a trial's next job."""
        spec = self.definition.with_secrets()
        keys = {account: found.read_key() for account, found in accounts.items()}
        notes = runs.notes(runs.content(spec, accounts))
        cluster = self.experiment.workspace.cluster(self.definition.cluster).id

        def body(number: int, point: Point, before: Job | None) -> tuple[str, Body]:
            note = {"name": SWEEP, "value": f"{self.definition.place}#{number}"}
            name = sweep_record.run_name(self.name, number, before.name if before else "")
            return name, runs.noted(fill(spec, point)._request(cluster, keys), [*notes, note])

        return body

    def _end(self, jobs: Sequence[Job]) -> None:
        with ThreadPoolExecutor(_AT_A_TIME, "batchhvd sweep") as pool:
            list(pool.map(lambda job: job.terminate(), jobs))
