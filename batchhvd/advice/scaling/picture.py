"""The advice as lines of text: a table, a bar for each number of ranks, and sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchhvd.advice.scaling.judgement import ScaleAdvice, ScaleRow
    from batchhvd.advice.scaling.measurement import ScaleRun

_WIDTH = 48  # signs of the longest bar
_PAGE = 110  # signs of a line of prose
_PARTS = (("input", "░"), ("compute", "█"), ("exchange", "▒"))


def lines(advice: ScaleAdvice) -> Iterator[str]:
    """Yields the lines."""
    yield "ranks  batch   samples/s     ±   worth  efficiency    step ms =  input + compute + exchange   left out"
    for run, row in zip(advice.runs, advice.rows, strict=True):
        yield _line(run, row)
    yield ""
    yield from _bars(advice)
    yield ""
    model = advice.model
    bandwidth = f"{1e-6 / model.per_byte:.0f} MB/s" if model.per_byte else "no limit seen"
    yield from _prose(
        f"Model: step = input + ({1e3 * model.fixed:.1f} ms + {1e3 * model.sample:.3f} ms a sample) x share of the "
        f"cores + {model.reductions} x {1e3 * model.latency:.2f} ms latency + "
        f"{1e-6 * (model.dense + model.sparse):.1f} MB at {bandwidth}{_errors(advice)}"
    )
    yield from _prose(advice.sentence)
    yield from _prose(advice.place)
    for text in advice.helps:
        yield from _prose(text, "  - ")


def _prose(text: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(bullet + text, _PAGE, subsequent_indent=" " * len(bullet), break_on_hyphens=False)


def _line(run: ScaleRun, row: ScaleRow) -> str:
    parts = f"{1e3 * row.input:6.1f} + {1e3 * row.compute:7.1f} + {1e3 * row.exchange:8.1f}"
    error = "" if row.error is None else f"{row.error:+.0%}"
    return (
        f"{run.ranks:5}  {run.batch:5}  {row.rate:10.1f}  {row.spread:4.0%}  {row.worth:6.2f}  {row.efficiency:10.2f}  "
        f"{1e3 * run.step:9.1f} = {parts}  {error:>8}"
    ).rstrip()


def _errors(advice: ScaleAdvice) -> str:
    found = [f"{row.error:+.0%} at {row.ranks} ranks" for row in advice.rows if row.error is not None]
    return f". Its rate is off by {', '.join(found)} if these are left out." if found else "."


def _bars(advice: ScaleAdvice) -> Iterator[str]:
    """Yields a bar for each number of ranks: how long a sample takes, and what with."""
    most = max(1 / row.rate for row in advice.rows)
    yield "a sample takes:  " + "  ".join(f"{sign} {name}" for name, sign in _PARTS)
    for run, row in zip(advice.runs, advice.rows, strict=True):
        length = _WIDTH / row.rate / most
        ends, place = [], 0.0
        for name, sign in _PARTS:
            place += getattr(row, name) / run.step * length
            ends.append((round(place), sign))
        bar = ""
        for end, sign in ends:
            bar += sign * (end - len(bar))
        mark = "  fastest" if row.ranks == advice.fastest else ""
        yield f"{row.ranks:3} {'rank ' if row.ranks == 1 else 'ranks'} {bar:{_WIDTH}} {1e3 / row.rate:.2f} ms{mark}"
