"""Many kinds of models, each trained on two ranks and on one with the same global batch.

Started as ``python model_table.py FOLDER``: one process imports what is needed, and forks the two ranks and the one
that is alone. What both must agree on: weights, the history of metrics, and `evaluate`. The judgement is the test's.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.e2e.trainer import horovod_battery as battery
from tests.e2e.trainer.model_case import CASES, Case, share
from tests.support import tiers

import keras  # isort: skip
import numpy as np
from attrs import asdict

from batchhvd.errors import SpecError
from batchhvd.trainer import hvd
from batchhvd.trainer.fitting import evaluate, fit

for _cases in ("basic", "data", "metrics", "loops"):
    import_module(f"tests.e2e.trainer.model_cases_{_cases}")

LIMIT = 60  # seconds of one case
WHOLE = os.environ.get("MODEL_TABLE") == "all"
# One case of each kind: what `make test` takes.
FEW = {
    *("sgd", "accumulation", "embedding_of_bytes", "pictures", "sum_loss_with_a_penalty", "nested_inputs"),
    *("sample_weights", "dataset", "own_loss", "two_optimizers", "built_by_its_first_batch"),
    *("loop_in_mixed_precision", "tape"),
}
GRAPHS = battery.BACKEND == "tensorflow" and not WHOLE  # only some cases as graphs, because tracing takes a second


def chosen() -> dict[str, Case]:
    """Returns the cases of this run."""
    named = os.environ.get("MODEL_TABLE", "")
    if named and not WHOLE:
        return {name: CASES[name] for name in named.split(",")}
    return {
        name: one
        for name, one in CASES.items()
        if battery.BACKEND in one.backends
        and (WHOLE or battery.BACKEND not in one.later)
        and (WHOLE or tiers.ALL or name in FEW)
    }


def run(one: Case) -> dict[str, Any]:
    """Trains a case and returns what it ended with."""
    given = one.build()
    model, data = given.pop("model"), given.pop("data")
    if GRAPHS and not one.traced:
        model.run_eagerly = True
    validation = given.pop("validation", data)
    history: Mapping[str, Sequence[float]] = {}
    if "work" in given:
        given["work"]()
    else:
        given = {"epochs": 2, "validation_freq": 2, **given}
        history = fit(model, data, validation=validation, batch_size=share(), progress=None, **given).history
    scale = {"pictures": True} if given.get("pictures") else {}
    shown = {} if validation is None else evaluate(model, validation, **scale)
    return {
        "weights": [np.asarray(weight, "float64").tolist() for weight in model.get_weights()],
        "figures": {**shown, **{f"last {name}": values[-1] for name, values in history.items()}},
        "steps": int(keras.ops.convert_to_numpy(model.optimizer.iterations)) if model.optimizer is not None else 0,
    }


def found(one: Case) -> dict[str, Any]:
    """Returns what a case ended with, the sentence that refused it, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ended = run(one)
        except SpecError as error:
            ended = {"refused": str(error)}
        except Exception as error:  # the others fail in the same way, or the limit ends this case
            ended = {"failed": f"{type(error).__name__}: {error}"}
    return {**ended, "warned": [str(warning.message) for warning in caught]}


def check_table(folder: Path) -> object:
    """Runs the cases; a file says which one is running, for the test to name one that does not end."""
    results = {}
    for name, one in chosen().items():
        if one.said and hvd.size() == 1:
            continue
        (folder / f"at-{hvd.rank()}.txt").write_text(name)
        began = time.monotonic()
        faulthandler.dump_traceback_later(LIMIT, exit=True)
        results[name] = found(one)
        faulthandler.cancel_dump_traceback_later()
        results[name]["seconds"] = round(time.monotonic() - began, 2)
        if "BATTERY_TIMES" in os.environ:
            print(hvd.rank(), name, results[name]["seconds"], round(time.process_time(), 1), flush=True)
    return results


def main(folder: Path) -> int:
    runs = chosen()
    left = [name for name, one in CASES.items() if battery.BACKEND in one.backends and name not in runs]
    cases = {name: asdict(one, filter=lambda part, value: part.name != "build") for name, one in runs.items()}
    (folder / "cases.json").write_text(
        json.dumps({"cases": cases, "left": left, "backend": battery.BACKEND, "graphs": GRAPHS})
    )
    (folder / "alone").mkdir()
    return battery.main(folder, 2, 1, ["table"], globals(), alone=folder / "alone")


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
