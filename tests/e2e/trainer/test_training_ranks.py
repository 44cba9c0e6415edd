"""The trainer as a user runs it: ranks that end alike, a script to upload, a training that was killed and goes on."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import batchhvd
from batchhvd.trainer.data import Data, load
from batchhvd.trainer.install import COMMAND, installed
from batchhvd.trainer.install.installation import framework_version
from batchhvd.trainer.measure import ranks
from tests.support import prefork

RANK = str(Path(__file__).with_name("training_rank.py"))
UPLOADED = str(Path(batchhvd.__file__).with_name("trainer") / "cifar_cnn_distributed.py")
SMALL = "ziffern klein.npz"


def require(*backends: str) -> None:
    if not installed():
        pytest.skip(f"Horovod is not built; build it with: {COMMAND}")
    for name in backends:
        if not framework_version(name):
            pytest.skip(f"{name} is not installed")


@pytest.fixture(scope="session")
def digits() -> Data:
    """The digits, parsed once for the whole run."""
    if find_spec("sklearn") is None:
        pytest.skip("the digits come with scikit-learn, which is not installed")
    return load("digits")


@pytest.fixture
def folder(tmp_path: Path, digits: Data) -> Path:
    """A folder with a small set of digits, named as users name folders."""
    place = tmp_path / "Übungs ordner"
    place.mkdir()
    arrays = {"x_train": digits.x_train[:310], "y_train": digits.y_train[:310]}
    np.savez(place / SMALL, **arrays, x_test=digits.x_test[:101], y_test=digits.y_test[:101])
    return place


def run(size: int, backend: str, *command: str) -> list[ranks.RankOutcome]:
    variables = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return ranks.run(prefork.python(backend, *command), size, variables=variables, timeout=200)


def well(outcomes: list[ranks.RankOutcome]) -> list[str]:
    for outcome in outcomes:
        assert outcome.exit_code == 0, ranks.tail(outcome.output, 40)
    return [outcome.output for outcome in outcomes]


@pytest.mark.horovod
def test_ranks_end_alike_and_know_the_same_figures(folder: Path) -> None:
    require("tensorflow")
    well(run(2, "tensorflow", RANK, "fit", str(folder)))
    first, second = (json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    # Seen to fail without the optimizer's wrapping, without the broadcast, and without averaging the statistics.
    assert first["digest"] == second["digest"]
    # 310 samples, 2 ranks of 24: 7 steps an epoch.
    assert first["steps"] == second["steps"] == 14
    assert first["metrics"] == second["metrics"]
    assert first["ranks"] == 2
    # 101 pictures shared by two ranks give what all of them give at once.
    assert first["metrics"]["val_loss"] == pytest.approx(first["whole"]["loss"], rel=1e-4)
    assert first["metrics"]["val_accuracy"] == pytest.approx(first["whole"]["accuracy"], abs=1e-6)
    assert len(first["lines"]) == 3 and first["lines"][2].startswith("Epoch 2/2  ")
    assert second["lines"] == []
    check_forms(folder)


@pytest.mark.horovod
def test_a_killed_training_goes_on_with_the_uploaded_script(folder: Path) -> None:
    require("torch")
    died = run(2, "torch", RANK, "die", str(folder))
    assert died[1].exit_code == 9
    arguments = ["--dir", str(folder), "--dataset", str(folder / SMALL), "--epochs", "4", "--resume"]
    talking, silent = well(run(2, "torch", UPLOADED, *arguments))
    assert "Epoch 3/4" in talking and "Epoch 2/4" not in talking
    records = [json.loads(line) for line in (folder / "epochs.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3, 4]
    for line in ("x_train shape: (310, 32, 32, 3)", "310 train samples", "101 test samples", "Test loss: "):
        assert line in talking and line not in silent
    accuracy = float(talking.split("Test accuracy: ")[1].split()[0])
    assert accuracy == pytest.approx(records[-1]["val_accuracy"])
    assert accuracy > 0.5
    assert loaded_accuracy(folder) == pytest.approx(accuracy, abs=0.02)


def loaded_accuracy(folder: Path) -> float:
    """Returns the accuracy of the saved model in a process that knows nothing of this package."""
    script = (
        "import sys, keras, numpy as np; a = np.load(sys.argv[2]); m = keras.models.load_model(sys.argv[1]); "
        "g = m.predict(a['x_test'] / np.float32(255), verbose=0).argmax(1); print('found', (g == a['y_test']).mean())"
    )
    model = folder / "saved_models" / "keras_cifar10_trained_model.h5"
    other = "tensorflow" if framework_version("tensorflow") else "torch"
    (output,) = well(run(1, other, "-c", script, str(model), str(folder / SMALL)))
    return float(output.split("found ")[1])


@pytest.mark.horovod
def test_any_form_of_data_gives_equal_steps_and_learns(folder: Path) -> None:
    require("torch")
    well(run(2, "torch", RANK, "forms", str(folder)))
    check_forms(folder)


def check_forms(folder: Path) -> None:
    first, second = (json.loads((folder / f"forms-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    # 50 samples, 2 ranks of 10: 3 steps an epoch, 8 epochs.
    assert {name: part["steps"] for name, part in first.items()} == dict.fromkeys(first, 24)
    assert len(first) == 3
    for part in first.values():
        assert part["loss"][-1] < 0.7 * part["loss"][0]


@pytest.mark.battery  # half a minute of a whole training; test_lowered_step.py trains with this recipe too
def test_the_fast_recipe_learns_the_digits_in_this_machines_own_precision(tmp_path: Path) -> None:
    """Where that is bfloat16 it guessed (0.10) as long as batch normalisation's epsilon was 1e-5."""
    if find_spec("sklearn") is None or not framework_version("tensorflow"):
        pytest.skip("this needs scikit-learn's digits and tensorflow")
    options = ["--recipe", "fast", "--epochs", "2", "--batch-size", "128", "--rate", "0.2"]
    command = ranks.python("-m", "batchhvd.trainer", "--dir", str(tmp_path), *options)
    well(ranks.run(command, 1, variables={"KERAS_BACKEND": "tensorflow"}, timeout=200))
    result = json.loads((tmp_path / "training.json").read_text())
    assert result["metrics"]["val_accuracy"] > 0.8
