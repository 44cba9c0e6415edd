"""What a training has reported by number, not by print: lines of JSON in ``metrics.jsonl`` beside its logs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

FILE = "metrics.jsonl"
_PLACES = ("epoch", "step")


@frozen
class Reported:
    """The reports of a training.

    Attributes:
        rows: one for each epoch, or for each step if it reports no epochs; ``epoch`` is then the number of the report.
        by_epoch: whether the reports say their epochs, so that they can stand beside what was printed.
        wrong: the numbers of the lines that were left out because they are no report, from 1.
    """

    rows: tuple[dict[str, float], ...] = ()
    by_epoch: bool = False
    wrong: tuple[int, ...] = field(default=())


def read(text: str) -> Reported:
    """Returns what a file of reports says; a last line without its end, which is being written, is left out.

    A later report of an epoch or step replaces the names that it has of an earlier one. If some reports have an epoch,
    those without one count to the next that has.
    """
    lines = text.split("\n")[:-1]
    found = {number: _record(line) for number, line in enumerate(lines, 1) if line.strip()}
    records = [record for record in found.values() if record]
    wrong = tuple(number for number, record in found.items() if not record)
    by_epoch = any("epoch" in record for record in records)
    rows = _merged(_gathered(records)) if by_epoch else _numbered(_merged((one["step"], one) for one in records))
    return Reported(tuple(rows), by_epoch, wrong)


def joined(printed: list[dict[str, float]], reported: Reported) -> list[dict[str, float]]:
    """Returns what was printed and what was reported as one table; of one name in one epoch the report counts."""
    if not reported.by_epoch:
        return list(reported.rows) or printed
    return _merged((row["epoch"], row) for row in [*printed, *reported.rows])


def _record(line: str) -> dict[str, float]:
    """Returns the numbers of a line, {} if it is no report."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    numbers = {name: float(one) for name, one in found.items() if isinstance(one, (int, float))}
    return numbers if any(name in numbers for name in _PLACES) else {}


def _gathered(records: list[dict[str, float]]) -> Iterator[tuple[float, dict[str, float]]]:
    """Yields epochs and their records; those without an epoch go with the next that has one."""
    waiting: dict[str, float] = {}
    for record in records:
        waiting |= record
        if "epoch" in record:
            yield record["epoch"], waiting
            waiting = {}


def _merged(records: Iterable[tuple[float, Mapping[str, float]]]) -> list[dict[str, float]]:
    rows: dict[float, dict[str, float]] = {}
    for place, record in records:
        rows.setdefault(place, {}).update(record)
    return [_whole(rows[place]) for place in sorted(rows)]


def _whole(row: dict[str, float]) -> dict[str, float]:
    return {name: int(value) if name in _PLACES else value for name, value in row.items()}


def _numbered(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{"epoch": number, **row} for number, row in enumerate(rows, 1)]
