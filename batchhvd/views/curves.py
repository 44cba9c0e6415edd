"""Learning curves: as an SVG for notebooks, as a row of blocks for terminals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from attrs import frozen

Record = Mapping[str, float]
Point = tuple[float, float]

_BLOCKS = "▁▂▃▄▅▆▇█"
_NOT_CURVES = frozenset({"epoch", "writer", "rank", "seconds", "images_per_second", "learning_rate", "lr"})
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 300, 170, 46, 24, 24
_COLOURS = ("#2f6fde", "#d9730d")  # training, validation: distinct for all kinds of colour vision, on light and dark

# After Okabe and Ito (2008): eight that are distinct for all kinds of colour vision.
_MANY = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6d31", "#7f7f7f")
_DASHES = ("", "6 3", "2 2", "8 3 2 3")
_ROW = 15  # pixels of a line of the legend


@frozen
class Panel:
    """One chart: a metric on the training data and on the validation data.

    Attributes:
        name: the metric's name, without ``val_``.
        lines: points (epoch, value) by the full name; values that are not finite are left out.
    """

    name: str
    lines: Mapping[str, Sequence[Point]]


def panels(records: Sequence[Record]) -> list[Panel]:
    """Returns one chart per metric, ``loss`` and ``accuracy`` first.

    Args:
        records: one mapping per epoch with ``epoch`` and any metrics.
    """
    names = dict.fromkeys(name for record in records for name in record if name not in _NOT_CURVES)
    groups: dict[str, dict[str, list[Point]]] = {}
    for name in names:
        line = [(record["epoch"], record[name]) for record in records if math.isfinite(record.get(name, math.nan))]
        if line:
            groups.setdefault(name.removeprefix("val_"), {})[name] = line
    order = sorted(groups, key=lambda name: (name != "loss", name != "accuracy"))
    return [Panel(name, groups[name]) for name in order]


def sparkline(values: Sequence[float]) -> str:
    """Returns a row of blocks, the lowest value as the lowest block; a value that is not finite is a blank."""
    known = [value for value in values if math.isfinite(value)]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    return "".join(_block(value, low, span) for value in values)


def _block(value: float, low: float, span: float) -> str:
    if not math.isfinite(value):
        return " "
    return _BLOCKS[round((value - low) / span * (len(_BLOCKS) - 1))] if span else _BLOCKS[0]


def svg(records: Sequence[Record]) -> str:
    """Returns the curves as one inline SVG, or "" if there is nothing to draw.

    Args:
        records: one mapping per epoch with ``epoch`` and any metrics.
    """
    drawn = panels(records)
    if not drawn:
        return ""
    width = _WIDTH * len(drawn)
    inside = "".join(_panel(panel, index * _WIDTH) for index, panel in enumerate(drawn))
    title = f"Learning curves: {', '.join(panel.name for panel in drawn)}"
    style = f"max-width:{width}px;width:100%;font:11px sans-serif"
    box = f'viewBox="0 0 {width} {_HEIGHT}" style="{style}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" {box}>{inside}</svg>'


def compared(metric: str, lines: Mapping[str, Sequence[Point]]) -> str:
    """Returns one metric of several jobs as an inline SVG with a legend, or "" if there is nothing to draw.

    Args:
        metric: the metric's name.
        lines: points (epoch, value) by the job's name; more than eight share colours and differ in their dashes.
    """
    drawn = {name: [(x, y) for x, y in line if math.isfinite(y)] for name, line in lines.items()}
    drawn = {name: line for name, line in drawn.items() if line}
    if not drawn:
        return ""
    styles = {name: _style(number) for number, name in enumerate(drawn)}
    height = _HEIGHT + _ROW * len(drawn) + _ROW // 2
    entries = "".join(_entry(name, styles[name], _HEIGHT + _ROW * (index + 1)) for index, name in enumerate(drawn))
    inside = _panel(Panel(metric, drawn), 0, styles) + entries
    style = f"max-width:{2 * _WIDTH}px;width:100%;font:11px sans-serif"
    box = f'viewBox="0 0 {_WIDTH} {height}" style="{style}"'
    title = escape(f"{metric} of {', '.join(drawn)}")
    return f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" {box}>{inside}</svg>'


def _style(number: int) -> tuple[str, str]:
    """Returns colour and dashes of one of many lines."""
    dash = _DASHES[number // len(_MANY) % len(_DASHES)]
    return _MANY[number % len(_MANY)], f' stroke-dasharray="{dash}"' if dash else ""


def _entry(name: str, style: tuple[str, str], y: int) -> str:
    colour, dash = style
    line = f'<path d="M{_LEFT} {y - 4}h22" stroke="{colour}" stroke-width="2"{dash}/>'
    return f'{line}<text x="{_LEFT + 28}" y="{y}" fill="currentColor">{escape(name)}</text>'


def _panel(panel: Panel, left: int, styles: Mapping[str, tuple[str, str]] | None = None) -> str:
    points = [point for line in panel.lines.values() for point in line]
    (first, last), (low, high) = _range([x for x, _ in points]), _range([y for _, y in points])
    right, bottom = _WIDTH - 12, _HEIGHT - _BOTTOM

    def place(point: Point) -> Point:
        x = _LEFT + (point[0] - first) / (last - first) * (right - _LEFT)
        return x, bottom - (point[1] - low) / (high - low) * (bottom - _TOP)

    ways = styles or {name: _own_style(name) for name in panel.lines}
    lines = "".join(_line(list(map(place, line)), *ways[name]) for name, line in panel.lines.items())
    axes = f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="currentColor" opacity=".4"/>'
    ends = sorted({x for x, _ in points})
    labels = [
        (_LEFT - 4, _TOP + 4, "end", f"{max(y for _, y in points):.4g}"),
        (_LEFT - 4, bottom, "end", f"{min(y for _, y in points):.4g}"),
        (place((ends[0], low))[0], bottom + 14, "middle", f"{ends[0]:g}"),
        (place((ends[-1], low))[0], bottom + 14, "middle", f"{ends[-1]:g}"),
        ((_LEFT + right) / 2, bottom + 20, "middle", "epoch"),
    ]
    texts = "".join(
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" opacity=".7">{text}</text>'
        for x, y, anchor, text in (labels if len(ends) > 1 else [*labels[:3], labels[4]])
    )
    head = _title(panel.name) if styles else _legend(panel)
    return f'<g transform="translate({left},0)">{head}{axes}{texts}{lines}</g>'


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of an axis, which differ even if all values are equal."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _own_style(name: str) -> tuple[str, str]:
    validation = name.startswith("val_")
    return _COLOURS[validation], ' stroke-dasharray="5 3"' if validation else ""


def _title(text: str) -> str:
    return f'<text x="{_LEFT}" y="14" font-weight="600" fill="currentColor">{escape(text)}</text>'


def _line(points: Sequence[Point], colour: str, dash: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>{dots}'


def _legend(panel: Panel) -> str:
    parts = [
        f'<tspan fill="{_COLOURS[name.startswith("val_")]}" dx="{10 if index else 0}">{escape(name)}</tspan>'
        for index, name in enumerate(panel.lines)
    ]
    return f'<text x="{_LEFT}" y="14" font-weight="600">{"".join(parts)}</text>'
