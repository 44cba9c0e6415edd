"""Optuna's study of a search: it lies as a journal where the sweep's definition lies, and outlives whoever keeps it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from batchhvd.errors import SpecError
from batchhvd.sweeps.search import Search
from batchhvd.sweeps.space import Dimension, Point
from batchhvd.sweeps.stopping import signed

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

_STRIDE = 100_003  # a prime, so that trials of neighbouring seeds draw different numbers


class JournalFile(Protocol):
    """Where a journal lies."""

    def read(self) -> bytes:
        """Returns what it holds; b"" if it does not exist."""

    def write(self, content: bytes) -> None:
        """Replaces what it holds, whole or not at all."""


class Study:
    """What Optuna knows of a search; each change is in the journal when the method that makes it returns."""

    def __init__(self, file: JournalFile, search: Search, name: str) -> None:
        """Reads the journal, or begins it.

        Raises:
            SpecError: Optuna is not installed.
        """
        self._optuna = _module()
        self._search = search
        self._journal = _journal(file)
        storage = self._optuna.storages.JournalStorage(self._journal)
        direction = "maximize" if search.goal == "max" else "minimize"
        self._study = self._optuna.create_study(
            storage=storage, study_name=name, direction=direction, load_if_exists=True
        )
        self._journal.flush()

    def point(self, number: int) -> Point | None:
        """Returns the point of a trial, by its number from 1, or None if it was not asked for yet."""
        trials = self._study.get_trials(deepcopy=False)
        whole = number <= len(trials) and trials[number - 1].params.keys() == self._search.dimensions.keys()
        return dict(trials[number - 1].params) if whole else None

    def ask(self, number: int) -> Point:
        """Returns the point of a trial, by its number from 1; Optuna chooses it if it was not asked for yet."""
        known = self.point(number)
        if known is not None:
            return known
        # A new sampler for each trial: whoever goes on after an interruption draws what would have been drawn.
        seed = (self._search.seed * _STRIDE + number) % 2**32
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        trial = self._study.ask()
        if trial.number != number - 1:
            raise SpecError(
                f"trial {number} is not the study's next, {trial.number + 1}",
                remedy="let one program at a time keep the sweep, and open it again",
            )
        point = {name: _suggested(trial, name, one) for name, one in self._search.dimensions.items()}
        self._journal.flush()
        return point

    def learn(self, number: int, point: Point) -> None:
        """Notes a trial that is known from its job only, because the journal was lost."""
        if number == len(self._study.get_trials(deepcopy=False)) + 1:
            distributions = {name: self._distribution(one) for name, one in self._search.dimensions.items()}
            running = self._optuna.trial.TrialState.RUNNING
            made = self._optuna.trial.create_trial(state=running, params=dict(point), distributions=distributions)
            self._study.add_trial(made)
            self._journal.flush()

    def is_open(self, number: int) -> bool:
        """Says whether a trial was asked for and its result not told yet."""
        trials = self._study.get_trials(deepcopy=False)
        return number <= len(trials) and not trials[number - 1].state.is_finished()

    def tell(self, number: int, curve: Sequence[float], *, given_up: bool) -> None:
        """Tells the result of a trial: its best value, all values if it was given up, a failure if there are none."""
        states = self._optuna.trial.TrialState
        finite = [value for value in curve if math.isfinite(value)]
        frozen: FrozenTrial = self._study.get_trials(deepcopy=False)[number - 1]
        trial = self._optuna.trial.Trial(self._study, frozen._trial_id)
        if given_up and finite:
            for step, value in enumerate(curve, 1):
                trial.report(value, step)
            self._study.tell(trial, state=states.PRUNED)
        elif finite:
            self._study.tell(trial, max(finite, key=lambda value: signed(value, self._search.goal)))
        else:
            self._study.tell(trial, state=states.FAIL)
        self._journal.flush()

    def _distribution(self, one: Dimension) -> Any:
        kinds = self._optuna.distributions
        if one.kind == "choice":
            return kinds.CategoricalDistribution(one.given)
        low, high = one.given
        if one.kind == "integer":
            return kinds.IntDistribution(low, high)
        return kinds.FloatDistribution(low, high, log=one.kind == "loguniform")


def _suggested(trial: optuna.Trial, name: str, one: Dimension) -> Any:
    if one.kind == "choice":
        return trial.suggest_categorical(name, one.given)
    low, high = one.given
    if one.kind == "integer":
        return trial.suggest_int(name, int(low), int(high))
    return trial.suggest_float(name, float(low), float(high), log=one.kind == "loguniform")


def _module() -> Any:
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        remedy = "pip install 'batchhvd[optuna]'"
        raise SpecError("a search by Optuna needs Optuna, which is not installed", remedy=remedy) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _journal(file: JournalFile) -> Any:
    """Returns a journal of Optuna's in a file; what was appended is written by ``flush``."""
    from optuna.storages.journal import BaseJournalBackend

    class _Journal(BaseJournalBackend):  # type: ignore[misc]  # mypy does not see Optuna
        def __init__(self) -> None:
            self.logs = [json.loads(line) for line in file.read().splitlines()]
            self.written = len(self.logs)

        def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
            return list(self.logs[log_number_from:])

        def append_logs(self, logs: Sequence[Mapping[str, Any]]) -> None:
            self.logs += [dict(one) for one in logs]

        def flush(self) -> None:
            if self.written < len(self.logs):
                file.write("".join(json.dumps(one) + "\n" for one in self.logs).encode())
                self.written = len(self.logs)

    return _Journal()
