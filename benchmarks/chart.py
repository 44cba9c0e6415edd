"""A chart of cost against size, as SVG: both axes are logarithmic, so that what does not grow is a level line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 900, 420, 70, 20, 330, 45
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93", "#444444")
SERIES = (
    "GET during the deletion, median ms",
    "GET during the deletion, 99 % ms",
    "page of jobs, CPU ms",
    "page of output files, CPU ms",
    "DELETE of an unused account, CPU ms",
)


def chart(rows: Sequence[dict[str, Any]], size: str, series: Sequence[str] = SERIES) -> str:
    """Returns the chart of some columns of a table against the column of sizes."""
    sizes = [row[size] for row in rows]
    values = [row[name] for row in rows for name in series]
    across = _scale(sizes, LEFT, WIDTH - RIGHT)
    up = _scale([10 ** math.floor(math.log10(min(values))), max(values)], HEIGHT - BOTTOM, TOP)
    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    parts += [_tick(across(value), HEIGHT - BOTTOM + 18, f"{value:,}", "middle") for value in sizes]
    parts += [_line(up(10.0**power), f"{10.0**power:g}") for power in _powers(values)]
    parts.append(_tick((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, f"{size} in the root", "middle"))
    parts.append(_tick(8, TOP - 6, "ms", "start"))
    for place, name in enumerate(series):
        points = [(across(row[size]), up(row[name])) for row in rows]
        parts += _curve(points, name, COLOURS[place % len(COLOURS)], TOP + 20 + 24 * place)
    head = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13"'
    head += f' viewBox="0 0 {WIDTH} {HEIGHT}">'
    return "\n".join([head, "<title>Cost against size</title>", *parts, "</svg>", ""])


def _scale(values: Sequence[float], start: float, end: float) -> Any:
    low, high = math.log10(min(values)), math.log10(max(values))
    return lambda value: round(start + (end - start) * (math.log10(value) - low) / ((high - low) or 1), 1)


def _powers(values: Sequence[float]) -> range:
    return range(math.floor(math.log10(min(values))), math.floor(math.log10(max(values))) + 1)


def _tick(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#222222">{text}</text>'


def _line(y: float, text: str) -> str:
    end = WIDTH - RIGHT
    return f'<path d="M{LEFT} {y}H{end}" stroke="#dddddd"/>\n' + _tick(LEFT - 8, y + 4, text, "end")


def _curve(points: Sequence[tuple[float, float]], name: str, colour: str, y: int) -> list[str]:
    """Returns a curve with its points, and its line in the legend."""
    path = "M" + "L".join(f"{x} {y}" for x, y in points)
    x = WIDTH - RIGHT + 20
    return [
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
        *(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in points),
        f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="2"/>',
        _tick(x + 30, y, name, "start"),
    ]
