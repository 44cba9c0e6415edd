"""Several ranks on both Keras backends: what they agree on, and that each mechanism is what makes them agree.

One start of ranks runs many checks (horovod_battery.py), because importing a framework is what takes time. Where a
test says "taken out", the same check ran without the mechanism, or was seen to fail without it as written there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from batchhvd.trainer.install import COMMAND, installed
from batchhvd.trainer.install.installation import framework_version
from batchhvd.trainer.measure import ranks
from batchhvd.trainer.measure.parity import WEIGHT
from tests.support import prefork
from tests.support.waiting import once

BATTERY = Path(__file__).with_name("horovod_battery.py")
CHECKS = [
    *("place", "together", "alone", "adam", "objects", "clipping", "sum", "compression", "accumulation", "passes"),
    *("accumulation_compiled", "scaling", "mixed", "frozen", "statistics", "start", "late", "metrics", "decisions"),
    *("warmup", "jit", "saving", "broken_wrapper", "resume", "records", "parity", "parity_cases"),
]
BACKENDS = ("tensorflow", "torch")

pytestmark = pytest.mark.horovod


def require(backend: str) -> None:
    if not installed():
        pytest.skip(f"Horovod is not built; build it with: {COMMAND}")
    if not framework_version(backend):
        pytest.skip(f"{backend} is not installed")
    if find_spec(f"horovod.{backend}.mpi_lib{'_v2' if backend == 'torch' else ''}") is None:
        pytest.skip(f"Horovod is not built for {backend}; build it with: {COMMAND}")


def battery(folder: Path, backend: str, size: int, checks: list[str], nodes: int = 1) -> list[dict[str, Any]]:
    require(backend)
    return run_battery(folder, backend, size, checks, nodes=nodes, variables={"BATCHHVD_EXCHANGE": "horovod"})


def run_battery(
    folder: Path, backend: str, size: int, checks: list[str], *, nodes: int, variables: dict[str, str]
) -> list[dict[str, Any]]:
    """Starts ranks that run checks, and returns what each of them found."""
    folder.mkdir()
    command = prefork.python(backend, str(BATTERY), str(folder), str(size), str(nodes), *checks)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1")
    variables = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", **threads, **variables}
    outcome = ranks.run(command, 1, variables=variables, timeout=240)[0]
    assert outcome.exit_code == 0, ranks.tail(outcome.output, 60)
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(size)]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[dict[str, Any]]]:
    """Starts so many ranks on a backend, once, and returns what each of them found."""

    @once
    def start(backend: str, size: int) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("viele ranks") / "ä"
        if size == 4:
            more = ["statistics", "parity"] if (backend, size) in MOST else []
            return battery(folder, backend, 4, ["place", "together", "alone", *more], nodes=2)
        return battery(folder, backend, 2, CHECKS + (["sparse"] if backend == "tensorflow" else []))

    return start


@pytest.fixture(params=BACKENDS)
def two(request: pytest.FixtureRequest, started: Any) -> Any:
    """What each of two ranks found, on each backend."""
    return started(request.param, 2)


# Two ranks answer for four in make test, but for PyTorch over torch.distributed (test_exchange_ranks.py).
@pytest.fixture(params=[pytest.param(backend, marks=pytest.mark.battery) for backend in BACKENDS])
def four(request: pytest.FixtureRequest, started: Any) -> Any:
    """What each of four ranks on two pretended nodes found, on each backend."""
    return started(request.param, 4)


ALL = [(backend, size) for backend in BACKENDS for size in (2, 4)]
# Four ranks on two cores take their time on TensorFlow: there two answer for both.
MOST = [which for which in ALL if which != ("tensorflow", 4)]


def entry(backend: str, size: int) -> Any:
    return pytest.param((backend, size), marks=[pytest.mark.battery] if size == 4 else [], id=str((backend, size)))


@pytest.fixture(params=[entry(*which) for which in ALL])
def facts(request: pytest.FixtureRequest, started: Any) -> Any:
    """What each rank found, for both numbers of ranks on both backends."""
    return started(*request.param)


def every(facts: list[dict[str, Any]], name: str) -> Any:
    """Returns what all ranks found, which must be the same."""
    found = [rank[name] for rank in facts]
    assert all(value == found[0] for value in found), found
    return found[0]


def different(values: list[Any]) -> bool:
    return len({json.dumps(value) for value in values}) == len(values)


def test_two_ranks_know_their_places(two: Any) -> None:
    assert [rank["place"] for rank in two] == [[0, 2, 0, 2, 0, 1], [1, 2, 1, 2, 0, 1]]


def test_four_ranks_know_their_places_on_two_nodes(four: Any) -> None:
    assert [rank["place"] for rank in four] == [
        [0, 4, 0, 2, 0, 2],
        [1, 4, 1, 2, 0, 2],
        [2, 4, 0, 2, 1, 2],
        [3, 4, 1, 2, 1, 2],
    ]


def test_ranks_end_with_the_same_weights(facts: Any) -> None:
    assert different([rank["together"]["before"] for rank in facts])
    assert len({rank["together"]["after"] for rank in facts}) == 1


def test_without_the_reduction_ranks_end_apart_and_are_warned(facts: Any) -> None:
    assert different([rank["alone"]["after"] for rank in facts])
    assert all("not distributed" in rank["alone"]["warned"][0] for rank in facts)


def test_the_optimizers_state_is_the_same(two: Any) -> None:
    assert every(two, "adam")["state"][0] == 3


def test_values_and_objects_travel(two: Any) -> None:
    assert every(two, "objects") == {
        "average": [1.5, 3.0],
        "sum": 3.0,
        "tensor": [1.0],
        "gather": [[0, 0], [1, 1], [1, 1]],
        "broadcast": [[1, 7]],
        "object": {"from": 1, "é": [1]},
        "objects": [{"rank": 0, "text": ""}, {"rank": 1, "text": "x"}],
        "barrier": None,
    }


def test_gradients_are_clipped_after_the_reduction(two: Any) -> None:
    # Gradients 4 and 0, clipped at 1: their mean 2 gives 1; clipped before, it would be 0.5.
    assert every(two, "clipping") == [-1.0]


def test_gradients_can_be_added(two: Any) -> None:
    assert every(two, "sum") == [-3.0]


def test_half_precision_travels_and_does_not_overflow(two: Any) -> None:
    third, large = every(two, "compression")
    assert third == pytest.approx(-1 / 3, rel=1e-3)
    assert third != pytest.approx(-1 / 3, rel=1e-6)  # the compression was there
    assert large == -60000.0  # the sum of both would be infinite in float16


def test_accumulated_gradients_are_reduced_at_the_boundary_only(two: Any) -> None:
    # Means over the ranks: 1.5, 4.5, 7.5, 10.5; over two steps: 3 and 9.
    assert every(two, "accumulation") == [[[0.0], 0], [[-3.0], 1], [[-3.0], 1], [[-12.0], 2]]
    assert every(two, "passes") == [[0.0], [-3.0]]
    assert every(two, "accumulation_compiled")


def test_loss_scaling_skips_on_all_ranks_or_none(two: Any) -> None:
    # Without the agreement in reduction.scale_together, rank 0 waits in this test for ever.
    assert every(two, "scaling") == [[[-1.5], 4.0], [[-1.5], 2.0], [[-4.5], 2.0]]
    mixed = every(two, "mixed")
    assert mixed["kind"] is True
    assert mixed["scale"] == 2.0**14


def test_frozen_weights_stay(two: Any) -> None:
    assert every(two, "frozen")["same"] is True


@pytest.mark.parametrize("facts", [entry(*which) for which in MOST], indirect=True)
def test_moving_statistics_are_averaged(facts: Any) -> None:
    assert len({rank["statistics"]["with"] for rank in facts}) == 1
    assert different([rank["statistics"]["without"] for rank in facts])


def test_weights_and_optimizer_start_as_rank_0_has_them(two: Any) -> None:
    assert every(two, "start") == {"weights": True, "momentum": 1.0, "step": 10}


def test_a_model_built_by_its_first_batch_starts_alike(two: Any) -> None:
    # Seen to fail on TensorFlow without BroadcastGlobalVariablesCallback._build_first: the first digests differ. On
    # PyTorch Keras builds every model before training.
    assert len(set(every(two, "late"))) == 1


def test_figures_are_means_weighted_by_samples(two: Any) -> None:
    shown = every([{"metrics": rank["metrics"]["shown"]} for rank in two], "metrics")
    assert set(shown) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    for name, value in shown.items():
        own = [(rank["metrics"]["own"][name], rank["metrics"]["weights"][name]) for rank in two]
        assert value == pytest.approx(sum(v * w for v, w in own) / sum(w for _, w in own), rel=1e-6)
        assert value != pytest.approx(sum(v for v, _ in own) / 2, rel=1e-6)


def test_ranks_stop_and_slow_down_together(two: Any) -> None:
    # Rank 1's own figures get better all the time: with Keras's callbacks it would go on alone.
    assert every(two, "decisions") == {"epochs": 3, "rate": pytest.approx(0.025)}


def test_the_rate_warms_up_and_follows_a_schedule(two: Any) -> None:
    up = [0.4, 0.466667, 0.533333, 0.6, 0.666667, 0.733333]
    assert every(two, "warmup") == [*up, 0.8, 0.8, 0.8, 0.08, 0.08, 0.08]


def test_a_compiled_step_reduces_each_time(two: Any, request: pytest.FixtureRequest) -> None:
    assert all(rank["jit"]["near"] for rank in two)
    if "torch" in request.node.name:
        assert [rank["jit"]["jit"] for rank in two] == [True, False]
        assert [rank["jit"]["reductions"] for rank in two] == [6, 6]
    else:
        assert [rank["jit"]["jit"] for rank in two] == [False, False]  # XLA has no operation of Horovod


# Keras on PyTorch makes no sparse gradients.
@pytest.mark.parametrize("two", ["tensorflow"], indirect=True)
def test_sparse_gradients_are_reduced(two: Any) -> None:
    sparse = every(two, "sparse")
    assert sparse["sparse"] == sparse["dense"] == [[-0.5, -0.5], [-1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]


def test_a_saved_model_is_plain_and_a_loaded_one_goes_on(two: Any) -> None:
    assert every(two, "saving") == {
        "module": "keras.optimizers",
        "plain": False,
        "own": True,
        "again": True,
        "h5": "SGD",
        "clone": True,
        "same": True,
        "digest": two[0]["saving"]["digest"],
    }


def test_horovods_own_wrapper_is_warned_of(two: Any) -> None:
    assert "every rank trains alone" in every(two, "broken_wrapper")[0]


def test_a_checkpoint_resumes_exactly(two: Any) -> None:
    resumed = every(two, "resume")
    assert resumed["whole"] == resumed["resumed"]
    assert (resumed["epoch"], resumed["step"]) == (1, 3)


def test_records_have_each_epoch_once(two: Any) -> None:
    record = two[0]["records"]["then"]
    assert [line["epoch"] for line in record] == [1, 2, 3]
    assert record[0] == two[0]["records"]["first"][0]
    assert record[1] != two[0]["records"]["first"][1]
    assert set(record[0]) == {
        *("epoch", "seconds", "images", "images_per_second", "learning_rate", "ranks"),
        *("loss", "accuracy", "val_loss", "val_accuracy"),
    }
    assert (record[0]["images"], record[0]["ranks"]) == (48, 2)
    assert [rank["records"]["logs"] for rank in two] == [["CSVLogger"], []]


@pytest.mark.parametrize("facts", [entry(*which) for which in MOST], indirect=True)
def test_ranks_equal_one_process_alone(facts: Any) -> None:
    found = facts[0]["parity"]
    assert found["with"]["holds"] is True, found
    assert found["with"]["ranks"] == len(facts)
    if "without" in found:  # the reduction, on PyTorch
        assert found["without"]["holds"] is False, found
        assert found["without"]["weight_error"] > 10 * WEIGHT


def test_more_kinds_of_training_equal_one_process(two: Any, request: pytest.FixtureRequest) -> None:
    found = two[0]["parity_cases"]
    names = ["two optimizers", "embeddings", "mixed precision", "accumulation", "orthogonal moves"]
    for name in ["embeddings"] if "tensorflow" in request.node.name else names:
        assert found[name]["holds"] is True, found[name]
        assert found[name]["text"].startswith(f"2 ranks, {name}: weights after 12 steps of model.")


def test_the_certificate_names_the_optimizer_that_exchanges_nothing(two: Any) -> None:
    found = two[0]["parity_cases"]["without"]
    assert (found["holds"], found["broken"]) == (False, ["optimizers['second']"]), found
    assert "model.optimizers['second'] does not do what one rank does: is it distributed?" in found["text"]


ALONE = """
import sys
sys.modules["horovod"] = None
from batchhvd.trainer import hvd
hvd.init()
assert (hvd.rank(), hvd.size(), hvd.nccl_built()) == (0, 1, False)
import keras, numpy as np
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
model.fit(np.ones((4, 2)), np.ones(4), verbose=0, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0),
                                                           hvd.callbacks.MetricAverageCallback()])
print("objects", hvd.allgather_object(1), hvd.broadcast_object(2), hvd.allreduce(3), hvd.allgather([4]))
"""


def test_one_rank_needs_no_horovod() -> None:
    if not framework_version("torch") and not framework_version("tensorflow"):
        pytest.skip("no framework is installed")
    backend = "torch" if framework_version("torch") else "tensorflow"
    outcome = ranks.run(prefork.python(backend, "-c", ALONE), 1, variables={"KERAS_BACKEND": backend}, timeout=120)[0]
    assert outcome.exit_code == 0, outcome.output
    assert "objects [1] 2 3.0 [4]" in outcome.output
