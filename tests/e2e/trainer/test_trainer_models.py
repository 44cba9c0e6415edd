"""Models of every kind on two ranks and both backends: right as on one rank, or refused by a sentence that helps.

One start of ranks runs many checks (model_battery.py), because importing a framework is what takes time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchhvd.trainer.measure import ranks
from tests.e2e.trainer.test_horovod_ranks import every, require
from tests.support import prefork

BATTERY = Path(__file__).with_name("model_battery.py")
CHECKS = [
    *("gan", "gan_by_hand", "hidden_optimizer", "bytes", "mixed_batches", "mixed_by_hand", "steps_apart"),
    *("writers", "backup", "saving_together", "disagreements", "uneven", "stopping", "page_loop", "exchanges"),
]

pytestmark = pytest.mark.horovod


# PyTorch, which traces nothing, answers for both in make test.
@pytest.fixture(scope="module", params=[pytest.param("tensorflow", marks=pytest.mark.battery), "torch"])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found, on each backend."""
    require(request.param)
    folder = tmp_path_factory.mktemp("viele modelle") / "ä"
    folder.mkdir()
    more = ["sparse_accumulation", "tape", "xla"] if request.param == "tensorflow" else []
    threads = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1")
    variables = {
        "KERAS_BACKEND": request.param,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": ".",
        "HOROVOD_TIMELINE": "DYNAMIC",
        **threads,
    }
    command = prefork.python(request.param, str(BATTERY), str(folder), "2", "1", *CHECKS, *more)
    outcome = ranks.run(command, 1, variables=variables, timeout=200)[0]
    assert outcome.exit_code == 0, ranks.tail(outcome.output, 60)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


def test_every_optimizer_of_a_model_is_distributed(two: Any) -> None:
    # Seen to fail: fit wrapped model.optimizer only, and each rank trained a GAN of its own.
    assert every(two, "gan")["after"]


def test_optimizers_wrapped_by_hand_are_not_warned_of(two: Any) -> None:
    # Seen to fail: the optimizer that compile makes by default, which the model does not use, was warned of.
    assert every(two, "gan_by_hand")["warned"] == []


def test_ranks_that_train_alone_are_found_out_at_the_first_step(two: Any) -> None:
    # Before this was checked: nothing was compared.
    message = every(two, "hidden_optimizer")
    assert message.startswith("after the first step the weights of the ranks differ")
    assert "dense" in message and "kernel" in message and "hvd.DistributedOptimizer" in message


def test_bytes_stay_what_they_are(two: Any) -> None:
    # Before this was checked: tokens were divided by 255, and Keras's own evaluate gave another accuracy than fit.
    found = every(two, "bytes")
    assert found["plain"] == pytest.approx(found["ours"]) == pytest.approx(found["fit"])
    assert found["plain"] > 0.95


def test_an_overflow_on_one_rank_is_decided_by_all_without_a_callback(two: Any) -> None:
    # Seen to fail: rank 1 skipped the step, and rank 0 waited in it for ever.
    assert every(two, "mixed_batches")["scale"] == 2.0**14
    assert every(two, "mixed_by_hand") == [[[-1.5], 4.0], [[-1.5], 2.0], [[-4.5], 2.0]]


def test_gradients_of_different_steps_never_mix(two: Any) -> None:
    # Before this was checked: they were averaged.
    assert every(two, "steps_apart") == [True, True]


def test_sparse_gradients_are_accumulated(two: Any) -> None:
    # Seen to fail on one rank too: "Cannot reconcile tf.cond", and sparse_as_dense changed nothing.
    if "sparse_accumulation" in two[0]:  # Keras on PyTorch makes no sparse gradients
        found = every(two, "sparse_accumulation")
        for sparse, dense in zip(found["sparse"], found["dense"], strict=True):
            assert np.allclose(sparse, dense, atol=1e-6)


def test_callbacks_that_write_do_so_on_rank_0(two: Any) -> None:
    # Seen to fail with all ranks writing to one path.
    assert [rank["writers"]["wrote"] for rank in two] == [True, False]
    assert [rank["writers"]["lines"] for rank in two] == [4, 4]
    assert len({rank["writers"]["after"] for rank in two}) == 1


def test_keras_own_backup_resumes_on_all_ranks(two: Any) -> None:
    # 48 samples, 2 ranks of 8: 3 steps an epoch, 2 epochs left of 4.
    found = every(two, "backup")
    assert (found["steps"], found["gone"]) == (6, True)


def test_ranks_that_save_to_one_path_leave_a_whole_file(two: Any) -> None:
    # Seen to fail without saving.install: BlockingIOError, or a file that cannot be read.
    assert every(two, "saving_together") == {"whole": 1, "files": ["all.h5", "all.keras", "all.weights.h5"]}


def test_ranks_that_disagree_are_named_before_the_first_step(two: Any) -> None:
    # Before this was checked: each ended in Horovod's "has been shut down", or waited for ever.
    found = every(two, "disagreements")
    assert "same steps per epoch, but rank 0 has 3; rank 1 has 4" in found["steps"]
    assert "same number of epochs, but rank 0 has 2; rank 1 has 3" in found["epochs"]
    assert "same first epoch, but rank 0 has 1; rank 1 has 2" in found["first"]
    assert "same trainable variables, but rank 0 has 4 (8x6, 6, 6x3, 3); rank 1 has 2 (6x3, 3)" in found["variables"]
    assert "op=hvd.Sum" in found["averaging"]
    assert "penalties of layers count once" in found["penalty"]


def test_uneven_data_is_evened_out_in_fit_and_said(two: Any) -> None:
    assert [rank["uneven"]["steps"] for rank in two] == [8, 8]
    assert [rank["uneven"]["few"] for rank in two] == [1, 1]
    assert len({rank["uneven"]["after"] for rank in two}) == 1
    assert two[0]["uneven"]["lines"] == [
        "The ranks have data for different numbers of steps (rank 0 2, rank 1 4): all make 4"
    ]


def test_a_rank_that_stops_early_stops_all_after_the_epoch(two: Any) -> None:
    # Before this was checked: the other rank waited for its gradients.
    assert every(two, "stopping")["steps"] == 6


# Rank 0 ends after rank 1 has: the starter would end a rank that still shuts down when another one fails.
LEAVING = """
import atexit, contextlib, os, pathlib, time
import numpy as np, keras
from batchhvd.trainer import hvd
def wait():
    stat, ends = pathlib.Path("/proc", pathlib.Path(os.environ["PIDS"], "1").read_text(), "stat"), time.monotonic() + 20
    with contextlib.suppress(OSError):  # it may go between the two looks
        while stat.exists() and ") Z" not in stat.read_text() and time.monotonic() < ends:
            time.sleep(0.05)
hvd.init()
pathlib.Path(os.environ["PIDS"], str(hvd.rank())).write_text(str(os.getpid()))
if hvd.rank() == 0:
    atexit.register(wait)
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(optimizer, "mse")
for step in range(5 - 2 * hvd.rank()):
    model.train_on_batch(np.ones((4, 2)), np.ones(4))
"""


def test_a_rank_that_leaves_early_is_named(tmp_path: Path) -> None:
    # Before this was checked: rank 0 ended with "Horovod has been shut down", and nothing named rank 1.
    require("torch")
    variables = {"KERAS_BACKEND": "torch", "PIDS": str(tmp_path)}
    first, second = ranks.run(prefork.python("torch", "-c", LEAVING), 2, variables=variables, timeout=60)
    assert (first.exit_code, second.exit_code) == (1, 0)
    last = first.output.rstrip().splitlines()[-1]
    assert last.startswith("batchhvd: before this, rank 1 had ended: it made fewer steps"), first.output


# --- Horovod's names -------------------------------------------------------------------------------------------------


def test_the_loop_of_the_page_trains_one_model(two: Any) -> None:
    assert every(two, "page_loop")["steps"] == 4


def test_horovods_tape_trains_keras_3(two: Any) -> None:
    # Before this was checked: there was no DistributedGradientTape, and Horovod's own cannot use variables of Keras 3.
    if "tape" in two[0]:
        found = every(two, "tape")
        assert found["True"] and found["False"]


def test_the_less_usual_operations_are_horovods(two: Any) -> None:
    first, second = (rank["exchanges"] for rank in two)
    assert (first["alltoall"], first["counts"]) == ([0.0, 10.0], [1, 1])
    assert (second["alltoall"], second["counts"]) == ([1.0, 2.0, 11.0, 12.0], [2, 2])
    assert (first["reducescatter"], second["reducescatter"]) == ([3.0], [9.0])
    assert first["even"] == second["even"] == [0, 1]
    assert first["same"] and second["same"]
    assert "same variables, but rank 0 has 1 (1); rank 1 has 1 (2)" in every([first, second], "different")


def test_a_step_that_xla_cannot_compile_is_said(two: Any) -> None:
    # Before this was checked: it was turned off without a word.
    if "xla" in two[0]:
        assert every(two, "xla") == ["jit_compile=True is turned off: XLA has no operation of Horovod"]
