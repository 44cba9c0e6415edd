"""What it costs that ranks compare their weights: ``python benchmarks/weight_check.py``.

Two ranks train the tutorial's network on pictures made up here, with ``fit``, on each Keras backend that is installed.
CPU time is counted, since a shared machine has no other: that of a comparison, which is made once after an epoch, and
that of a step. An epoch of CIFAR-10 on two ranks has 782 steps of 32 pictures each.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from batchhvd.trainer.measure import ranks
from batchhvd.trainer.measure.machine_facts import machine

RESULT = Path(__file__).parent / "results" / "weight_check.json"
RANKS, BATCH, STEPS, EPOCHS = 2, 32, 40, 3
WHOLE = 782


def rank(answer: Path) -> None:
    """Is one rank: trains, and rank 0 writes what a comparison and a step took."""
    from batchhvd.trainer import backend

    backend.prepare()
    import keras
    import numpy as np

    from batchhvd.trainer import hvd
    from batchhvd.trainer.fitting import fit
    from batchhvd.trainer.hvd import model_broadcast, weight_check
    from batchhvd.trainer.network import tutorial

    spent: list[float] = []
    compare = weight_check.check_weights

    def timed(*arguments: Any) -> None:
        began = time.thread_time()
        compare(*arguments)
        spent.append(time.thread_time() - began)

    weight_check.check_weights = model_broadcast.check_weights = timed
    marks: list[float] = []

    class Marks(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            marks.append(time.process_time())

    dice = np.random.default_rng(0)
    pictures = dice.integers(0, 256, size=(RANKS * BATCH * STEPS, 32, 32, 3), dtype=np.uint8)
    labels = dice.integers(0, 10, size=len(pictures))
    model = tutorial((32, 32, 3), 10)
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    fit(model, (pictures, labels), epochs=EPOCHS, batch_size=BATCH, pictures=True, callbacks=[Marks()], progress=None)
    if hvd.rank() == 0:
        later = spent[2:]  # the first comparison was after the first step, the second after the first epoch
        step = (time.process_time() - marks[1] - sum(later)) / (STEPS * (EPOCHS - 1))
        check = sum(later) / len(later)
        facts = {
            "backend": keras.config.backend(),
            "ranks": RANKS,
            "weights": int(model.count_params()),
            "comparison_ms": round(1000 * check, 3),
            "step_ms": round(1000 * step, 2),
            "percent": round(100 * check / (WHOLE * step), 4),
        }
        answer.write_text(json.dumps(facts))


def main() -> None:
    """Measures each backend and writes the result."""
    rows = []
    for backend in ("tensorflow", "torch"):
        if find_spec(backend) is None:
            print(f"{backend} is not installed: left out")
            continue
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder, "answer.json")
            variables = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
            outcomes = ranks.run(ranks.python(__file__, str(answer)), RANKS, variables=variables, timeout=900)
            if any(outcome.exit_code for outcome in outcomes):
                sys.exit(ranks.tail(outcomes[0].output))
            rows.append(json.loads(answer.read_text()))
            print(rows[-1])
    facts = {"command": "python benchmarks/weight_check.py", "machine": machine(), "comparisons": rows}
    RESULT.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "HOROVOD_RANK" in os.environ and len(sys.argv) > 1:
        rank(Path(sys.argv[1]))
    else:
        main()
