"""The adviser measures real ranks: what a step is made of, on both backends, with dense and with sparse gradients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from batchhvd.advice.scaling.measurement import ScaleRun

SCRIPT = """
import sys
from batchhvd.trainer import backend
backend.prepare()
import keras
import numpy as np
import batchhvd.trainer.hvd as hvd

hvd.init()
first = keras.layers.Embedding(1000, 16) if sys.argv[1] == "sparse" else keras.layers.Dense(256)
x = np.random.default_rng(0).integers(0, 1000, size=(640, 8)).astype("int32" if sys.argv[1] == "sparse" else "float32")
model = keras.Sequential([first, keras.layers.Flatten(), keras.layers.Dense(10)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=False)
saved = keras.callbacks.ModelCheckpoint("never.keras")
if sys.argv[1] == "loop":
    sys.exit()
model.fit(x, np.zeros((640, 10)), batch_size=16, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0), saved])
"""


def scale(folder: Path, backend: str, kind: str, ranks: str = "1,2") -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    options = ["--ranks", ranks, "--seconds", "2", "--precision", "0.2", "--json", "found.json"]
    command = [sys.executable, "-m", "batchhvd.trainer", "scale", *options, "train.py", kind]
    variables = {"KERAS_BACKEND": backend, "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.parametrize(
    ("backend", "kind"), [("torch", "dense"), pytest.param("tensorflow", "sparse", marks=pytest.mark.battery)]
)
def test_a_step_of_two_ranks_is_taken_apart(tmp_path: Path, backend: str, kind: str) -> None:
    done = scale(tmp_path, backend, kind)
    assert done.returncode == 0, done.stderr
    alone, two = (ScaleRun(**run) for run in json.loads((tmp_path / "found.json").read_text())["runs"])
    assert (alone.ranks, two.ranks, two.batch, two.machines) == (1, 2, 16, 1)
    for run in (alone, two):
        assert run.step == pytest.approx(run.input + run.compute + run.exchange, rel=0.01)
        assert run.input > 0 and run.compute > 1e-5 and run.steps > 5
    assert alone.exchange == 0 and alone.double is not None
    assert two.exchange > 0 and two.latency > 0 and two.backend == backend
    layers = 4 * (8 * 256 + 256 + 256 * 10 + 10) if kind == "dense" else 4 * (8 * 16 * 10 + 10)
    assert two.dense_bytes == layers + 4  # and the number of the step
    assert two.sparse_bytes == (
        0 if kind == "dense" else 4 * 16 * 8 * 16
    )  # a row of 16 for each of 8 words of 16 samples
    assert "The 2 ranks share the" in done.stdout and "not a promise" in done.stdout
    assert not (tmp_path / "never.keras").exists()


def test_a_script_that_trains_otherwise_is_named(tmp_path: Path) -> None:
    done = scale(tmp_path, "torch", "loop", ranks="1")
    assert done.returncode == 1
    assert "ended without training by model.fit" in done.stderr and "Traceback" not in done.stderr
