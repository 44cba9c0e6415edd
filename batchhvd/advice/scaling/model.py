"""The model of a step: computing on a share of the cores, and exchanging what computing has made.

    step = input + (fixed + sample * batch) * share + crowd * (reductions * latency * log2(ranks) + volume / bandwidth)

``share`` grows from 1 for one rank on a machine to ``work`` for as many ranks as cores, and with the ranks beyond: each
then gets a part of a core. ``crowd`` grows from 1 with the ranks that share a core, but slower than their number: in an
exchange a rank mostly waits for its neighbours, and meanwhile the core works for another one. ``volume`` is what a rank
sends and gets: twice its gradients less what it keeps, as in a ring, and the rows of sparse gradients of all others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from attrs import evolve, frozen

from batchhvd.advice.scaling.measurement import ScaleRun, in_order

_FINEST = 60  # halvings when the work of a step is searched for
_BUSY = 0.25  # the part of an exchange in which a rank needs its core: measured on 2 cores with 2 and 4 ranks


@frozen
class StepTime:
    """Seconds of one step: the sum of three."""

    input: float
    compute: float
    exchange: float

    @property
    def whole(self) -> float:
        """Seconds of the step."""
        return self.input + self.compute + self.exchange


@frozen
class RankPlace:
    """Where ranks run.

    Attributes:
        ranks: how many.
        local: how many of them on each machine.
        cores: of each machine.
        batch: samples of one rank per step.
    """

    ranks: int
    local: int
    cores: int
    batch: float

    @property
    def crowd(self) -> float:
        """How many times as long an exchange takes as if each rank had a core."""
        return 1.0 + _BUSY * (max(1.0, self.local / self.cores) - 1.0)


@frozen
class ScaleModel:
    """What was fitted.

    Attributes:
        fixed, sample: seconds of computing on one rank: of a step, and of each sample in it.
        work: how many times as long computing takes when there is one core for each rank.
        latency: seconds of an exchange of nearly nothing between two ranks.
        per_byte: seconds for each byte that a rank sends or gets; its inverse is the bandwidth.
        reductions: exchanges of a step.
        dense, sparse: bytes of one rank's gradients; sparse ones of a step of ``batch`` samples.
        input: seconds in which one rank waits for each sample.
        batch: the batch that ``sparse`` belongs to.
    """

    fixed: float
    sample: float
    work: float
    latency: float
    per_byte: float
    reductions: int
    dense: float
    sparse: float
    input: float
    batch: float

    def predict(self, place: RankPlace) -> StepTime:
        """Returns what a step would take there."""
        compute = (self.fixed + self.sample * place.batch) * share(place, self.work)
        return StepTime(self.input * place.batch, compute, self.exchange(place))

    def exchange(self, place: RankPlace) -> float:
        """Returns the seconds of the exchange of a step; nothing on one rank."""
        if place.ranks == 1:
            return 0.0
        sent = volume(place.ranks, self.dense, self.sparse * place.batch / self.batch)
        return place.crowd * (self.reductions * self.latency * math.log2(place.ranks) + sent * self.per_byte)


def volume(ranks: int, dense: float, sparse: float) -> float:
    """Returns the bytes that a rank sends or gets in an exchange."""
    return 2 * (ranks - 1) / ranks * dense + (ranks - 1) * sparse


def share(place: RankPlace, work: float) -> float:
    """Returns how many times as long computing takes as for one rank that has the machine for itself.

    Args:
        place: where the ranks run.
        work: the same, for one core for each rank.
    """
    if place.local >= place.cores:
        return work * place.local / place.cores if place.cores > 1 else float(place.local)
    alone = min(max((1 / work - 1 / place.cores) / (1 - 1 / place.cores), 0.0), 1.0)  # the part that uses one core
    return work * (alone + (1 - alone) * place.local / place.cores) if place.local > 1 else 1.0


def place_of(run: ScaleRun) -> RankPlace:
    """Returns where a run was measured."""
    return RankPlace(run.ranks, run.local, run.cores, run.batch)


def fit(runs: Sequence[ScaleRun]) -> ScaleModel:
    """Returns the model of some runs.

    Args:
        runs: one of them on one rank.

    Raises:
        SpecError: one rank was not measured.
    """
    first, *more = in_order(runs)
    fixed, sample = _computing(first)
    sending = [run for run in more if run.exchange]
    last = more[-1] if more else first
    model = ScaleModel(
        fixed=fixed,
        sample=sample,
        work=1.0,
        latency=fmean([_latency(run) for run in sending]) if sending else 0.0,
        per_byte=0.0,
        reductions=last.reductions,
        dense=last.dense_bytes,
        sparse=last.sparse_bytes,
        input=first.input / first.batch,
        batch=last.batch,
    )
    return evolve(model, work=_work(model, [run for run in more if run.shared]), per_byte=_per_byte(model, sending))


def _computing(run: ScaleRun) -> tuple[float, float]:
    """Returns the seconds of a step of one rank, and of each sample, from a batch and twice that."""
    sample = ((run.double or 2 * run.compute) - run.compute) / run.batch
    sample = min(max(sample, 0.0), run.compute / run.batch)
    return run.compute - sample * run.batch, sample


def _latency(run: ScaleRun) -> float:
    """Returns the seconds of an exchange of nearly nothing between two ranks that share no core."""
    return run.latency / (place_of(run).crowd * math.log2(run.ranks))


def _work(model: ScaleModel, runs: Sequence[ScaleRun]) -> float:
    """Returns the work that fits best: the least sum of squared relative errors. It has one minimum: share grows."""
    if not runs:
        return 1.0
    low, high = 1.0, 4.0 * max(run.cores for run in runs)

    def error(work: float) -> float:
        found = [evolve(model, work=work).predict(place_of(run)).compute / run.compute for run in runs]
        return sum((one - 1) ** 2 for one in found)

    for _ in range(_FINEST):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if error(left) < error(right) else (left, high)
    return (low + high) / 2


def _per_byte(model: ScaleModel, runs: Sequence[ScaleRun]) -> float:
    """Returns the seconds of a byte that fit best; never less than 0."""
    # Minimizes the sum over runs of ((a + b x) / y - 1)^2 for x, where a is the part of the latency.
    above = below = 0.0
    for run in runs:
        place = place_of(run)
        part = model.exchange(place) / run.exchange
        slope = place.crowd * volume(run.ranks, run.dense_bytes, run.sparse_bytes) / run.exchange
        above += slope * (1 - part)
        below += slope * slope
    return max(above / below, 0.0) if below else 0.0


def left_out(runs: Sequence[ScaleRun]) -> dict[int, float]:
    """Returns, for each number of ranks but one, how far the rate is off that a model of all others predicts.

    The error is relative to the measured rate: -0.1 is a prediction that is 10 % too low. Empty if one rank is all
    that would remain, since nothing would say then what an exchange takes.
    """
    ordered = in_order(runs)
    if len(ordered) < 3:
        return {}
    errors = {}
    for run in ordered[1:]:
        found = predicted(fit([other for other in ordered if other is not run]), run)
        errors[run.ranks] = run.step / found.whole - 1
    return errors


def predicted(model: ScaleModel, run: ScaleRun) -> StepTime:
    """Returns what the model says of the place at which a run was measured."""
    return model.predict(place_of(run))
