"""The step that is compiled as a whole on a GPU computes what Keras's own does; here on the CPU, not compiled."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchhvd.trainer.install.installation import framework_version, installed
from batchhvd.trainer.measure import ranks
from tests.support import prefork

CASE = Path(__file__).with_name("lowered_case.py")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    if not framework_version("torch"):
        pytest.skip("torch is not installed")
    ended = subprocess.run(
        prefork.python("torch", str(CASE)), capture_output=True, text=True, env={**os.environ, "KERAS_BACKEND": "torch"}
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    document: dict[str, Any] = json.loads(ended.stdout.rpartition("FOUND")[2])
    return document


@pytest.mark.parametrize("network", ["fast", "residual", "tutorial"])
def test_a_lowered_step_trains_as_keras_does(found: dict[str, Any], network: str) -> None:
    weights, metrics, copied = found[network]
    assert weights < 2e-5
    assert metrics < 1e-5
    assert copied == 0, "a step that is recorded on a GPU may not copy constants to it"


def test_a_layer_that_is_not_known_is_named(found: dict[str, Any]) -> None:
    normalization, convolution, doubled = found["refused"]
    assert "LayerNormalization" in normalization
    assert "padding with strides" in convolution
    assert "Doubled has a call of its own" in doubled  # seen to be lowered, to the layers without the factor


def test_orthogonal_moves_have_singular_values_near_one(found: dict[str, Any]) -> None:
    assert all(0.3 < value < 1.7 for value in found["singular values"])


@pytest.mark.horovod
def test_the_fast_recipe_trains_on_two_ranks_and_leaves_a_plain_model(tmp_path: Path) -> None:
    if not framework_version("torch") or not installed():
        pytest.skip("torch or Horovod is not installed")
    random = np.random.default_rng(0)
    arrays = {f"x_{part}": random.integers(0, 256, (64, 32, 32, 3), dtype=np.uint8) for part in ("train", "test")}
    np.savez(tmp_path / "noise.npz", **arrays, y_train=random.integers(0, 10, 64), y_test=random.integers(0, 10, 64))
    script = ("-m", "batchhvd.trainer", "--dataset", str(tmp_path / "noise.npz"), "--dir", str(tmp_path / "out"))
    command = prefork.python("torch", *script, "--recipe", "fast", "--epochs", "1", "--batch-size", "16")
    both = ranks.run(command, 2, variables={"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1"}, timeout=150)
    assert [outcome.exit_code for outcome in both] == [0, 0], both[0].output[-2000:]
    loading = "import sys, keras; print(keras.saving.load_model(sys.argv[1]).count_params(), 'batchhvd' in sys.modules)"
    model = tmp_path / "out" / "saved_models" / "keras_cifar10_trained_model.keras"
    ended = subprocess.run(prefork.python("torch", "-c", loading, str(model)), capture_output=True, text=True)
    assert ended.stdout.split()[-1] == "False", ended.stderr[-2000:]
