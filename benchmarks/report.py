"""Writes docs/benchmarks.md, docs/all-figures.md and README's figures: ``python benchmarks/report.py [--check]``.

Each result is a JSON document of the benchmark of the same name; what stands in it is shown, and nothing else.
"""

from __future__ import annotations

import functools
import json
import operator
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from chart import chart

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
ALL = HERE.parent / "docs" / "all-figures.md"
CHART = HERE.parent / "docs" / "images" / "growth.svg"
README = HERE.parent / "README.md"
BEGIN, END = "<!-- figures: benchmarks/report.py writes this table -->", "<!-- end of figures -->"
HEAD = """# Benchmarks

The figures that matter first. [All figures](all-figures.md) has the others, with machines, versions and records.
The machines were shared and noisy: trust ratios more than absolute figures, and measure on your own machine.
"""
HEAD_OF_ALL = """# All figures

Each figure was measured by the command above it; `python benchmarks/report.py` writes this page from the results
that the commands leave in `benchmarks/results`. [Benchmarks](benchmarks.md) shows what matters first.
"""
ORDER = (
    "trainer_cifar10",
    "printed_tutorial",
    "trainer_record_h200",
    "trainer_gpus_h200",
    "trainer_exchange_h200",
    "trainer_gpu_h100",
    "weight_check",
    "adviser",
    "control_plane",
    "scheduler",
    "growth",
    "growth_soak",
    "drills",
    "slurm_node_kill",
    "sweep",
    "sweep_kills",
    "sweep_many",
    "transfer",
    "testing",
    "client",
    "first_hour",
)


def results(name: str) -> list[Any]:
    """Returns what the calls of one benchmark have left, none where it was not run."""
    path = HERE / "results" / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return document if isinstance(document, list) else [document]


def command(name: str, result: dict[str, Any]) -> str:
    """Returns the command that left a result."""
    return str(result.get("command", f"python benchmarks/{name}.py"))


def glance(readme: bool = False) -> str:
    """Returns the table of what to look at first, from goals.json; README's is shorter and names the commands."""
    rows = [["what", "measured", "goal", *(["command"] if readme else [])]]
    rows.append(["---"] * len(rows[0]))
    for goal in json.loads((HERE / "goals.json").read_text(encoding="utf-8")):
        if readme <= goal["readme"]:
            found = results(goal["result"])[goal["call"]]
            figure = functools.reduce(operator.getitem, goal["at"], found)
            row = [goal["what"], shown(figure), goal["goal"]]
            rows.append([*row, f"`{command(goal['result'], found)}`"] if readme else row)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def readme() -> str:
    """Returns README with its table brought up to date."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{glance(readme=True)}\n{end}{after}"


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
        lines = [columns, *([shown(row.get(key, "")) for key in columns] for row in rows)]
        if name == "sizes":  # few rows with many columns
            lines = list(map(list, zip(*lines, strict=True)))
        lines.insert(1, ["---"] * len(lines[0]))
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
    parts = (part(command(path.stem, result), result) for result in results(path.stem))
    return "\n".join([f"## {path.stem.replace('_', ' ').capitalize()}", "", *parts])


def part(command: str, result: dict[str, Any]) -> str:
    """Returns what one call of a benchmark found."""
    lines = [f"`{command}`", ""]
    if "sizes" in result:
        lines += ["![Cost against the number of jobs](images/growth.svg)", ""]
    lines += ["| figure | value |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in figures(result) if name != "command"]
    return "\n".join([*lines, "", *(f"{table}\n" for table in tables(result))])


def page() -> str:
    """Returns the page with the figures that matter first."""
    return "\n".join([HEAD, glance(readme=True), "", *first_hour()])


def first_hour() -> list[str]:
    """Returns the steps of a stranger's first hour, with their seconds."""
    steps = [f"| {name} | {shown(seconds)} |" for name, seconds in results("first_hour")[0]["steps"].items()]
    head = "From the wheel in a fresh environment, `make first-hour`:"
    return ["## A stranger's first hour", "", head, "", "| step | seconds |", "|---|---|", *steps, ""]


def everything() -> str:
    """Returns the page with all figures."""
    known = {name: place for place, name in enumerate(ORDER)}
    paths = sorted((HERE / "results").glob("*.json"), key=lambda path: (known.get(path.stem, len(ORDER)), path.stem))
    return "\n".join([HEAD_OF_ALL, "## At a glance", "", glance(), "", *map(section, paths)])


if __name__ == "__main__":
    wanted = {PAGE: page(), ALL: everything(), README: readme(), CHART: chart(results("growth")[0]["sizes"], "jobs")}
    if "--check" in sys.argv:
        stale = [
            path.name for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
        ]
        sys.exit(f"{' and '.join(stale)} differ from the results: run python benchmarks/report.py" if stale else 0)
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
