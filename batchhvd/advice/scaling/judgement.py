"""What follows from the measured runs: how many ranks, what a step is lost to, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from attrs import asdict, evolve, frozen

from batchhvd.advice.scaling import model as models
from batchhvd.advice.scaling.measurement import ScaleRun, in_order
from batchhvd.advice.scaling.model import RankPlace, ScaleModel
from batchhvd.advice.scaling.picture import lines

_EQUAL = 0.03  # rates that differ by less are the same: the fewer ranks win, also within the intervals
_UNSURE = 0.1  # half the width of an interval that makes the advice doubtful
_BETTER = 1.05  # what is worth saying
_LARGER = (2, 4, 8)  # times the batch
_PASSES = 4  # steps whose gradients are collected
_MUCH_INPUT = 0.1  # of a step


@frozen
class ScaleRow:
    """One number of ranks.

    Attributes:
        ranks: how many.
        rate: samples per second of all ranks.
        worth: how many times as fast as one rank.
        efficiency: ``worth`` for each rank.
        free: what ``worth`` would be if the exchange took no time.
        input, compute, exchange: seconds of a step.
        spread: of the rate, relative, for 95 % of measurements.
        error: how far the prediction of a model without this number is off, relative; None for one rank.
    """

    ranks: int
    rate: float
    worth: float
    efficiency: float
    free: float
    input: float
    compute: float
    exchange: float
    spread: float
    error: float | None


@frozen
class ScaleAdvice:
    """How many ranks pay.

    Attributes:
        runs: what was measured, by ranks.
        model: what was fitted.
        rows: one for each number of ranks.
        fastest: the number of ranks of the highest rate; the lowest of those that are equal within 3 %.
        cheapest: that of the fewest seconds of machines for each sample.
        sentence: the advice.
        place: what the measurement says about other machines, and what not.
        helps: what would help, best first.
    """

    runs: tuple[ScaleRun, ...]
    model: ScaleModel
    rows: tuple[ScaleRow, ...]
    fastest: int
    cheapest: int
    sentence: str
    place: str
    helps: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def to_document(self) -> dict[str, object]:
        """Returns all figures as a dictionary for JSON."""
        return asdict(self)


def advise(runs: Sequence[ScaleRun]) -> ScaleAdvice:
    """Returns the advice that follows from measured runs.

    Args:
        runs: one of them on one rank.

    Raises:
        SpecError: one rank was not measured.
    """
    ordered = in_order(runs)
    model = models.fit(ordered)
    rows = tuple(_rows(ordered))
    fastest = _first_best(ordered, [run.rate for run in ordered])
    cheapest = _first_best(ordered, [run.rate / run.machines for run in ordered])
    helps = sorted(_helps(ordered, model), reverse=True)
    return ScaleAdvice(
        tuple(ordered),
        model,
        rows,
        fastest,
        cheapest,
        _sentence(ordered, rows, fastest, cheapest, helps),
        _place(ordered, rows, model),
        tuple(text for _, text in helps),
    )


def _rows(runs: Sequence[ScaleRun]) -> Iterator[ScaleRow]:
    errors = models.left_out(runs)
    alone = runs[0].rate
    for run in runs:
        worth = run.rate / alone
        free = worth * run.step / (run.step - run.exchange)
        yield ScaleRow(
            ranks=run.ranks,
            rate=run.rate,
            worth=worth,
            efficiency=worth / run.ranks,
            free=free,
            input=run.input,
            compute=run.compute,
            exchange=run.exchange,
            spread=run.spread,
            error=errors.get(run.ranks),
        )


def _first_best(runs: Sequence[ScaleRun], values: Sequence[float]) -> int:
    """Returns the fewest ranks whose value is as good as the best, as far as the measurements tell."""
    most, best = max(zip(values, runs, strict=True), key=lambda pair: pair[0])
    least = most * (1 - max(_EQUAL, min(best.spread, 1.0)))
    pairs = zip(runs, values, strict=True)
    return next(run.ranks for run, value in pairs if value * (1 + min(run.spread, 1.0)) >= least)


def _sentence(
    runs: Sequence[ScaleRun],
    rows: Sequence[ScaleRow],
    fastest: int,
    cheapest: int,
    helps: Sequence[tuple[float, str]],
) -> str:
    last = rows[-1] if fastest == 1 else next(row for row in rows if row.ranks == fastest)
    run = next(run for run in runs if run.ranks == last.ranks)
    if last.ranks == 1:
        return "Only one rank was measured: nothing can be said about more."
    lost = f"{last.exchange / run.step:.0%} of a step is exchange"
    if fastest == 1:
        text = f"Do not scale: {last.ranks} ranks are worth {last.worth:.2f}, and {lost}"
        if last.worth > 1 + _EQUAL:
            text = f"Nothing shows that more ranks pay: {last.ranks} may be worth {last.worth:.2f}, and {lost}"
    else:
        text = f"Take {fastest} ranks: they are worth {last.worth:.2f}, and {lost}"
        also = "No number of ranks is cheaper" if cheapest == fastest else f"The cheapest is {_count(cheapest)}"
        text += f". {also}"
    text += f". {helps[0][1]}." if helps else "."
    widest = max(run.spread for run in runs)
    if widest > _UNSURE:
        text += f" But the rates are known to {widest:.0%} only: measure for longer, or when nothing else runs."
    return text


def _place(runs: Sequence[ScaleRun], rows: Sequence[ScaleRow], model: ScaleModel) -> str:
    """Says what sharing a machine costs, and what can be said of a cluster."""
    last, row = runs[-1], rows[-1]
    if not last.shared:
        machines = f"{last.machines} machines" if last.machines > 1 else "one machine"
        return f"The ranks ran on {machines}, each with its {last.cores} cores for itself."
    apart = RankPlace(last.ranks, 1, last.cores, last.batch)
    alone = model.predict(RankPlace(1, 1, last.cores, last.batch))
    found = model.predict(apart)
    most = last.ranks * alone.whole / found.whole
    return (
        f"The {last.local} ranks share the {last.cores} cores of one machine, so they take them from one another: even "
        f"if the exchange were free, they would be worth {row.free:.2f} here. On {last.ranks} machines with cores of "
        f"their own they would be worth at most {most:.1f}. A network is slower than this machine's memory, so that is "
        f"a bound and not a promise: measure on the cluster."
    )


# --- what would help ------------------------------------------------------------------------------------------------


def _helps(runs: Sequence[ScaleRun], model: ScaleModel) -> Iterator[tuple[float, str]]:
    """Yields by how much each remedy would speed up the most ranks, and how to say it."""
    last = runs[-1]
    if last.ranks > 1:
        yield from _against_exchange(last, model)
    if last.shared and last.local * (last.threads or last.cores) > max(last.cores, last.local):
        found = f"{last.threads} threads each" if last.threads else "as many threads each as there are cores"
        yield (
            1.0,
            f"Fewer threads: {last.local} ranks start {found} on {last.cores} cores. Call "
            f"batchhvd.trainer.backend.prepare() before Keras is imported, or set OMP_NUM_THREADS and "
            f"TF_NUM_INTRAOP_THREADS to {max(1, last.cores // last.local)}",
        )
    waiting = last.input / last.step
    if waiting > _MUCH_INPUT:
        yield (
            1 / (1 - waiting),
            f"Data: {waiting:.0%} of a step is waiting for its batch; prepare batches ahead (prefetch, workers), or "
            f"keep them in memory",
        )


def _against_exchange(run: ScaleRun, model: ScaleModel) -> Iterator[tuple[float, str]]:
    place = models.place_of(run)
    now = worth(model, place)
    ranks = _count(run.ranks)
    larger = [(worth(model, evolve(place, batch=times * run.batch)), times * run.batch) for times in _LARGER]
    best = next((one for one in larger if one[0] >= 0.95 * max(larger)[0]), larger[0])
    if best[0] > now * _BETTER:
        yield best[0] / now, f"Larger batches ({best[1]}) would make {ranks} worth {best[0]:.1f} instead of {now:.1f}"
    seldom = _with_exchange(model, place, 1 / _PASSES)
    if seldom > now * _BETTER:
        yield (
            seldom / now,
            f"Accumulation (backward_passes_per_step={_PASSES}) would make {ranks} worth {seldom:.1f} instead of "
            f"{now:.1f}",
        )
    half = evolve(model, dense=model.dense / 2)
    small = worth(half, place)
    if small > now * _BETTER:
        yield (
            small / now,
            f"Compression (hvd.Compression.fp16) would make {ranks} worth {small:.1f} instead of {now:.1f}, less what "
            f"converting costs",
        )


def worth(model: ScaleModel, place: RankPlace) -> float:
    """Returns how many times as fast as one rank with the same batch the ranks of a place are, by the model."""
    return _with_exchange(model, place, 1.0)


def _with_exchange(model: ScaleModel, place: RankPlace, part: float) -> float:
    """Returns the same if only a part of the exchange were left."""
    alone = model.predict(evolve(place, ranks=1, local=1))
    found = model.predict(place)
    return place.ranks * alone.whole / (found.input + found.compute + part * found.exchange)


def _count(ranks: int) -> str:
    return "one rank" if ranks == 1 else f"{ranks} ranks"
