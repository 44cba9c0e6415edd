"""Is one rank of test_training_rate.py: ``python rate_rank.py POLICY``; the last line is what rank 0 found, in JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from batchhvd.trainer import backend

backend.prepare()

import keras  # noqa: E402  after the preparation on purpose
import numpy as np  # noqa: E402

import batchhvd.trainer as trainer  # noqa: E402
from batchhvd.errors import SpecError  # noqa: E402
from batchhvd.trainer import hvd  # noqa: E402

RATE = 0.02


def trained(rate: Any, scale_rate: Any, *, several: bool = False, **more: Any) -> dict[str, Any]:
    """Trains a line on all ranks, and returns the lines, the weight, and the rate afterwards."""
    x = np.linspace(-1, 1, 32, dtype="float32").reshape(32, 1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False)])
    optimizer = keras.optimizers.SGD(rate)
    model.compile(keras.optimizers.MultiOptimizer(lambda _: optimizer) if several else optimizer, "mse")
    lines: list[str] = []
    trainer.fit(
        model, (x, 3 * x), epochs=1, batch_size=8, shuffle=False, scale_rate=scale_rate, progress=lines.append, **more
    )
    return {
        "lines": lines,
        "weight": float(model.get_weights()[0][0, 0]),
        "after": float(model.optimizer.learning_rate),
    }


def refused(**more: Any) -> str:
    try:
        trained(RATE, **more)
    except SpecError as error:
        return str(error)
    return ""


def main() -> None:
    """Trains with numbers, schedules and functions, and with callbacks that set the rate themselves."""
    hvd.init()
    found = {str(how): trained(RATE, how) for how in (None, "linear", "sqrt")}
    found["given"] = trained(RATE * hvd.size(), None)
    found["schedule"] = trained(keras.optimizers.schedules.ExponentialDecay(RATE, 1, 1.0), "linear")
    found["function"] = trained(lambda: RATE, "linear")
    found["refused"] = {
        "callback": refused(scale_rate="linear", callbacks=[keras.callbacks.LearningRateScheduler(lambda _: RATE)]),
        "several": refused(scale_rate="linear", several=True),
        "unknown": refused(scale_rate="cubic"),
    }
    if hvd.rank() == 0:
        print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
    sys.stdout.flush()
