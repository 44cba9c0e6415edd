"""The judgement about the table of models: what two ranks found against what one found that was alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchhvd.trainer.measure import ranks
from tests.e2e.trainer.test_horovod_ranks import require
from tests.support import prefork, tiers

TABLE = Path(__file__).with_name("model_table.py")


def start(backend: str, folder: Path) -> dict[str, Any]:
    """Runs the table, and returns what each process found, the cases and what was left out."""
    require(backend)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1")
    variables = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": ".", **threads}
    outcome = ranks.run(prefork.python(backend, str(TABLE), str(folder)), 1, variables=variables, timeout=1200)[0]
    at = {path.name: path.read_text() for path in folder.rglob("at-*.txt")}
    assert outcome.exit_code == 0, f"ended in {at}: {ranks.tail(outcome.output, 60)}"
    places = {"alone": "alone/rank-0.json", "first": "rank-0.json", "second": "rank-1.json"}
    found = {name: json.loads((folder / place).read_text())["table"] for name, place in places.items()}
    return {**found, **json.loads((folder / "cases.json").read_text())}


def wrong(table: dict[str, Any]) -> dict[str, list[str]]:
    """Returns how two ranks differ from one, by case."""
    found = {name: list(_faults(name, one, table)) for name, one in table["cases"].items()}
    return {name: texts for name, texts in found.items() if texts}


def _faults(name: str, case: dict[str, Any], table: dict[str, Any]) -> Iterator[str]:
    for place in ("first", "second"):
        ours = table[place][name]
        if case["said"]:
            told = [ours.get("refused", ""), *ours["warned"]]
            if not any(case["said"] in text for text in told):
                yield f"{place}: not said: {case['said']!r}, but {ours.get('failed', told)}"
        elif "weights" not in ours or "weights" not in table["alone"][name]:
            both = (ours, table["alone"][name])
            yield f"{place}: {[one.get('failed', one.get('refused', 'trained')) for one in both]}"
        else:
            yield from (f"{place}: {text}" for text in _differences(case, ours, table["alone"][name]))
            yield from (f"{place}: warned: {text}" for text in _noise(ours))


def _noise(found: dict[str, Any]) -> Iterator[str]:
    """Yields warnings for which nobody is to blame but the library."""
    yield from (text for text in found["warned"] if "ran out of data" in text)


def _differences(case: dict[str, Any], ours: dict[str, Any], alone: dict[str, Any]) -> Iterator[str]:
    if ours["steps"] != alone["steps"]:
        yield f"{ours['steps']} steps, not {alone['steps']}"
    for place, pair in enumerate(zip(ours["weights"], alone["weights"], strict=True)):
        error: float = np.max(np.abs(np.subtract(*pair)), initial=0.0)
        if not error <= case["weights"]:
            yield f"weight {place} by {error:.2g}"
    for name in ours["figures"].keys() | alone["figures"].keys():
        if name.removeprefix("last ").removeprefix("val_") in case["other"]:
            continue
        value, expected = (figures.get(name, np.nan) for figures in (ours["figures"], alone["figures"]))
        if not abs(value - expected) <= case["figures"] * max(1, abs(expected)):
            yield f"{name} {value}, not {expected}"


def name_what_is_left(table: dict[str, Any]) -> None:
    """Lists the cases that only the whole table runs, in a line at the end of the tests."""
    eager = [name for name, case in table["cases"].items() if table["graphs"] and not case["traced"]]
    said = [f"MODEL_TABLE=all (make models) also runs {len(table['left'])} on {table['backend']}"]
    said += [] if tiers.ALL else ["of which make test-all takes the telling ones"]
    said += [f"and {len(eager)} others as graphs"] if eager else []
    if table["left"]:
        pytest.skip(f"{' '.join(said)}: {', '.join(table['left'])}")
