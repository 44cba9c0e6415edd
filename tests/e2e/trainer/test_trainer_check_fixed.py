"""Six whole scripts in the style of public examples, rewritten by ``check --fix``, train on two ranks.

The originals fail, or leave the ranks apart; `observe_corpus.py` shows that. Here all six run one after another in one
start of two ranks, because importing the frameworks is what takes time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batchhvd.trainer.check.__main__ import main
from batchhvd.trainer.install import COMMAND, installed
from batchhvd.trainer.measure import ranks
from tests.support import prefork

CORPUS = Path(__file__).parents[2] / "data" / "check"
RUNNER = Path(__file__).with_name("fixed_scripts.py")
#: TF2 with fit, TF2 with a tape, the long example of 2019, two scripts for one process, and a model of two networks.
SCRIPTS = ("tf2_keras_mnist", "tf2_tape_mnist", "keras_mnist_advanced", "plain_keras", "plain_functions", "gan_alone")

pytestmark = pytest.mark.horovod


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    """Returns what each rank noted of each script."""
    if not installed():
        pytest.skip(f"Horovod is not built; build it with: {COMMAND}")
    folder = tmp_path_factory.mktemp("fixed")
    for name in SCRIPTS:
        script = folder / f"{name}.py"
        script.write_text((CORPUS / f"{name}.py").read_text(encoding="utf-8"), encoding="utf-8")
        assert main([str(script), "--fix"]) in (0, 1)
    # What is left there to a person: where Keras 3 keeps the generator of pictures.
    advanced = folder / "keras_mnist_advanced.py"
    kept = advanced.read_text(encoding="utf-8").replace("from keras.prepro", "from tensorflow.keras.prepro")
    advanced.write_text(kept, encoding="utf-8")
    command = prefork.python("tensorflow", str(RUNNER), str(folder), *SCRIPTS)
    variables = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    outcomes = ranks.run(command, 2, variables=variables, timeout=200)
    assert [outcome.exit_code for outcome in outcomes] == [0, 0], ranks.tail(outcomes[0].output, 60)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_fixed_script_trains_on_two_ranks(ran: list[dict[str, dict[str, Any]]], name: str) -> None:
    first, second = (rank[name] for rank in ran)
    assert first["moved"] and first["weights"] == second["weights"]


def test_rank_0_alone_writes_and_prints(ran: list[dict[str, dict[str, Any]]]) -> None:
    first, second = (rank["plain_keras"] for rank in ran)
    assert "accuracy:" in first["output"] and second["output"] == ""
    assert first["files"] == ["accuracy.npy", "digits.keras"]
