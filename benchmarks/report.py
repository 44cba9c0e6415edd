"""Writes docs/benchmarks.md and README's figures from benchmarks/results: ``python benchmarks/report.py [--check]``.

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
README = HERE.parent / "README.md"
BEGIN, END = "<!-- figures: benchmarks/report.py writes this table -->", "<!-- end of figures -->"
HEAD = """# Benchmarks

Every figure here was measured by the command above it; `python benchmarks/report.py` writes this page from the
results that the commands leave in `benchmarks/results`. The machines are shared and noisy: read ratios before absolute
figures, and measure on your own.
"""
ORDER = (
    "trainer_cifar10",
    "trainer_gpus_h200",
    "trainer_gpu_h100",
    "control_plane",
    "scheduler",
    "slurm_node_kill",
    "transfer",
    "client",
)

#: What to look at first: what was measured, the result's name, where in it the figure stands, and the goal.
GLANCE: tuple[tuple[str, str, str, str], ...] = (
    (
        "tutorial's network, CIFAR-10 (JPEG copy), 2 ranks on 2 cores: test accuracy after 12 passes, median of 3",
        "trainer_cifar10",
        "0 > medians > final_accuracy",
        "≥ 0.78",
    ),
    ("the same: seconds of training to 75 %", "trainer_cifar10", "0 > medians > training_seconds_to_target", "≤ 900"),
    ("the same: images a second, augmentation included", "trainer_cifar10", "0 > medians > images_per_second", "≥ 520"),
    ("the same in float32", "trainer_cifar10", "1 > medians > images_per_second", "≥ 520"),
    (
        "the same network, 2 cores, 64 images a rank: 4 ranks' rate as a part of one's",
        "trainer_cifar10",
        "3 > speed > 2 > of_first",
        "≥ 0.85",
    ),
    (
        "`fast`, 2 ranks on 2 cores, JPEG copy: test accuracy after 17 passes, 0.60 PFLOP",
        "trainer_cifar10",
        "2 > medians > final_accuracy",
        "≥ 0.94",
    ),
    (
        "times the printed tutorial's rate on its own stack of 2018, in turn on one machine",
        "printed_tutorial",
        "medians > auto / printed",
        "",
    ),
    ("the same, ours in float32", "printed_tutorial", "medians > float32 / printed", ""),
    (
        "one H100, tutorial's network, batch 4096: images a second through `fit`, augmentation included",
        "trainer_gpu_h100",
        "throughput > 0 > images_per_second",
        "≥ 400,000",
    ),
    ("one H100: seconds of training to more than 75 %", "trainer_gpu_h100", "tutorial > 0 > seconds", "≤ 5"),
    ("two H200, batch 4096 a card: images a second", "trainer_gpus_h200", "speed > 1 > images_per_second", ""),
    ("two H200, batch 4096 a card: part of twice one card", "trainer_gpus_h200", "speed > 1 > efficiency", "≥ 0.9"),
    ("two H200, batch 1024 a card: part of twice one card", "trainer_gpus_h200", "speed > 3 > efficiency", "≥ 0.9"),
    (
        "two H200 over NCCL equal one: error of the first step's gradients",
        "trainer_gpus_h200",
        "parity > 1 > gradient_error",
        "≤ 0.00001",
    ),
    ("`fast` on one H200, JPEG copy: test accuracy", "trainer_gpus_h200", "fast > 0 > accuracy", "≥ 0.94"),
    ("`fast` on one H200: seconds of training", "trainer_gpus_h200", "fast > 0 > seconds", "≤ 10"),
    (
        "what a network of four times the width reaches on the same copy with 11.5 PFLOP",
        "trainer_gpus_h200",
        "ceiling > 0 > accuracy",
        "",
    ),
    ("GET of a job, 8 clients: median ms", "control_plane", "median_ms", "≤ 3"),
    ("GET of a job, 8 clients: 99th percentile ms", "control_plane", "p99_ms", "≤ 10"),
    ("1 GiB uploaded, part of the rate to a server that discards it", "transfer", "large > up share", "≥ 0.6"),
    ("1 GiB downloaded, likewise", "transfer", "large > down share", "≥ 0.6"),
    ("small files a second, 8 processes", "transfer", "small > files per second > processes > median", "≥ 300"),
    ("from submitting to the job's first line: seconds", "client", "first_line_s > median", "≤ 1"),
    ("a line of a job arrives after: seconds", "client", "log_lag_s > median", "≤ 0.3"),
    ("import batchhvd: seconds", "client", "import_s > median", "≤ 0.15"),
    (
        "a Slurm node dies in a training: seconds lost",
        "slurm_node_kill",
        "with a dead node > lost, from that start to the end of the epoch that was cut off",
        "≤ 60",
    ),
)
README_ROWS = (
    "0 > medians > final_accuracy",
    "0 > medians > images_per_second",
    "medians > auto / printed",
    "throughput > 0 > images_per_second",
    "speed > 1 > efficiency",
    "parity > 1 > gradient_error",
    "median_ms",
    "large > up share",
    "first_line_s > median",
    "log_lag_s > median",
)


def found(result: Any, place: str) -> Any:
    """Returns the figure at a place such as ``speed > 0 > efficiency``."""
    for step in place.split(" > "):
        result = result[int(step) if isinstance(result, list) else step]
    return result


def results(name: str) -> list[Any]:
    """Returns what the calls of one benchmark have left, none where it was not run."""
    path = HERE / "results" / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return document if isinstance(document, list) else [document]


def measured(name: str, place: str) -> str:
    """Returns the figure at a place of a benchmark's results, "not measured" where there is none."""
    documents = results(name)
    try:
        return shown(found(documents if len(documents) > 1 else documents[0], place))
    except (IndexError, KeyError):
        return shown(None)


def glance() -> str:
    """Returns the table of what to look at first."""
    lines = ["| what | measured | goal |", "|---|---|---|"]
    lines += [f"| {what} | {measured(name, place)} | {goal} |" for what, name, place, goal in GLANCE]
    return "\n".join(["## At a glance", "", *lines, ""])


def extract() -> str:
    """Returns README's table: some of the figures with the commands that measured them."""
    lines = ["| what | measured | goal | command |", "|---|---|---|---|"]
    for what, name, place, goal in GLANCE:
        if place in README_ROWS:
            number = int(place.split(" > ")[0]) if len(results(name)) > 1 else 0
            command = results(name)[number].get("command", f"python benchmarks/{name}.py")
            lines.append(f"| {what} | {measured(name, place)} | {goal} | `{command}` |")
    return "\n".join(lines)


def readme() -> str:
    """Returns README with its table brought up to date."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{BEGIN}\n{extract()}\n{end}{after}"


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
    default = f"python benchmarks/{path.stem}.py"
    parts = (part(result.pop("command", default), result) for result in results(path.stem))
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
    return "\n".join([HEAD, glance(), *map(section, paths)])


if __name__ == "__main__":
    wanted = {PAGE: page(), README: readme()}
    if "--check" in sys.argv:
        stale = [path.name for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
        sys.exit(f"{' and '.join(stale)} differ from the results: run python benchmarks/report.py" if stale else 0)
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
