"""Writes docs/benchmarks.md from the results in benchmarks/results: ``python benchmarks/report.py [--check]``.

Each result is a JSON document of the benchmark of the same name; what stands in it is shown, and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Every figure here was measured by the command above it; `python benchmarks/report.py` writes this page from the
results that the commands leave in `benchmarks/results`. The machines are shared and noisy: read ratios before absolute
figures, and measure on your own.
"""
ORDER = ("trainer_cifar10", "trainer_gpu", "control_plane", "scheduler", "slurm_node_kill", "transfer", "client")


def figures(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yields each figure of a result with the path to it; lists of records are left to ``tables``."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from figures(inner, f"{name} · {key}" if name else str(key).replace("_", " "))
    elif not _records(value):
        yield name, ", ".join(map(shown, value)) if isinstance(value, list) else shown(value)


def tables(result: dict[str, Any]) -> Iterator[str]:
    """Yields a table for each list of records; searches for settings are only counted."""
    for name, rows in result.items():
        if not _records(rows):
            continue
        if name.startswith("search"):
            yield f"*{name}*: {len(rows)} trainings, in the JSON file."
            continue
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines = [columns, ["---"] * len(columns), *([shown(row.get(key, "")) for key in columns] for row in rows)]
        yield "\n".join([f"*{name}*", "", *(f"| {' | '.join(line)} |" for line in lines)])


def _records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def shown(value: Any) -> str:
    """Returns a figure as text, to four digits where it is not whole."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "not measured"}[value]
    if isinstance(value, list):
        return " ".join(map(shown, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|").replace("\n", " ")


def section(path: Path) -> str:
    """Returns the page's section on one file: one result, or a list of them from several calls."""
    found = json.loads(path.read_text(encoding="utf-8"))
    results = found if isinstance(found, list) else [found]
    default = f"python benchmarks/{path.stem}.py"
    parts = (part(result.pop("command", default), result) for result in results)
    return "\n".join([f"## {path.stem.replace('_', ' ').capitalize()}", "", *parts])


def part(command: str, result: dict[str, Any]) -> str:
    """Returns what one call of a benchmark found."""
    lines = [f"`{command}`", "", "| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in figures(result)]
    return "\n".join([*lines, "", *(f"{table}\n" for table in tables(result))])


def page() -> str:
    """Returns the whole page."""
    known = {name: place for place, name in enumerate(ORDER)}
    paths = sorted((HERE / "results").glob("*.json"), key=lambda path: (known.get(path.stem, len(ORDER)), path.stem))
    return "\n".join([HEAD, *map(section, paths)])


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit("run python benchmarks/report.py" if PAGE.read_text(encoding="utf-8") != page() else 0)
    PAGE.write_text(page(), encoding="utf-8")
