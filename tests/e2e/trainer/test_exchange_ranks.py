"""Ranks of PyTorch without Horovod, over torch.distributed: they agree on everything that they agree on with Horovod.

The tests are those of test_horovod_ranks.py; only where the ranks come from differs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchhvd.trainer.install.installation import framework_version
from batchhvd.trainer.measure import ranks
from tests.e2e.trainer import test_horovod_ranks as with_horovod
from tests.e2e.trainer.test_horovod_ranks import (  # noqa: F401  # collected here, with the fixtures below
    test_a_checkpoint_resumes_exactly,
    test_a_compiled_step_reduces_each_time,
    test_a_model_built_by_its_first_batch_starts_alike,
    test_a_saved_model_is_plain_and_a_loaded_one_goes_on,
    test_accumulated_gradients_are_reduced_at_the_boundary_only,
    test_figures_are_means_weighted_by_samples,
    test_four_ranks_know_their_places_on_two_nodes,
    test_frozen_weights_stay,
    test_gradients_are_clipped_after_the_reduction,
    test_gradients_can_be_added,
    test_half_precision_travels_and_does_not_overflow,
    test_loss_scaling_skips_on_all_ranks_or_none,
    test_more_kinds_of_training_equal_one_process,
    test_ranks_end_with_the_same_weights,
    test_ranks_stop_and_slow_down_together,
    test_records_have_each_epoch_once,
    test_the_certificate_names_the_optimizer_that_exchanges_nothing,
    test_the_optimizers_state_is_the_same,
    test_the_rate_warms_up_and_follows_a_schedule,
    test_two_ranks_know_their_places,
    test_values_and_objects_travel,
    test_weights_and_optimizer_start_as_rank_0_has_them,
    test_without_the_reduction_ranks_end_apart_and_are_warned,
)
from tests.support import prefork
from tests.support.waiting import once

CHECKS = [check for check in with_horovod.CHECKS if check != "broken_wrapper"]  # the wrapper is Horovod's own
WITHOUT = {"BATCHHVD_EXCHANGE": "torch"}

pytestmark = pytest.mark.skipif(not framework_version("torch"), reason="torch is not installed")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[dict[str, Any]]]:
    """Starts so many ranks, once, and returns what each of them found."""

    @once
    def start(size: int) -> list[dict[str, Any]]:
        checks = CHECKS if size == 2 else ["place", "together", "alone"]
        folder = tmp_path_factory.mktemp("viele ranks") / "ä"
        return with_horovod.run_battery(folder, "torch", size, checks, nodes=size // 2, variables=WITHOUT)

    return start


@pytest.fixture(params=["torch"])
def two(started: Any) -> Any:
    """What each of two ranks found."""
    return started(2)


@pytest.fixture(params=["torch"])
def four(started: Any) -> Any:
    """What each of four ranks on two pretended nodes found."""
    return started(4)


@pytest.fixture(params=[2, 4])
def facts(request: pytest.FixtureRequest, started: Any) -> Any:
    """What each rank found, for both numbers of ranks."""
    return started(request.param)


def test_two_ranks_equal_one_process_alone(two: Any) -> None:
    with_horovod.test_ranks_equal_one_process_alone(two)


MIXED = """
import numpy as np
from batchhvd.trainer import hvd

hvd.init()
try:
    hvd.allreduce(np.ones(3, "float32"), name=f"of-rank-{hvd.rank()}")
except RuntimeError as error:
    print("rank", hvd.rank(), type(error).__name__)
try:
    hvd.broadcast(np.ones(2 + hvd.rank(), "float32"), name="shape")
except RuntimeError as error:
    print("rank", hvd.rank(), error)
for size in (3, 3 + hvd.rank()):
    try:
        hvd.allreduce(np.ones(size, "float32"), name="length")
    except RuntimeError as error:
        print("rank", hvd.rank(), "length", type(error).__name__)
nothing = [hvd.broadcast(np.zeros((0, 2))), hvd.allgather(np.zeros((0, 2))), hvd.alltoall(np.zeros((0, 2)))]
print("rank", hvd.rank(), "nothing", [part.shape for part in nothing])
scalars = [float(hvd.allreduce(np.float64(3))), hvd.broadcast(np.array([True, False])).tolist()]
scalars.append(hvd.allgather(1).tolist())
print("rank", hvd.rank(), "scalars", scalars)
print("rank", hvd.rank(), "empty", hvd.allgather(np.zeros((2 * hvd.rank(), 3), "float32")).shape)
received = hvd.alltoall(np.arange(4) + 10 * hvd.rank(), splits=[1, 3] if hvd.rank() == 0 else [2, 2])
print("rank", hvd.rank(), "has", [list(map(int, part)) for part in received])
print("rank", hvd.rank(), "has", list(map(float, hvd.reducescatter(np.arange(3, dtype="float32"), op=hvd.Sum))))
"""


def test_different_operations_do_not_mix(tmp_path: Path) -> None:
    variables = {"KERAS_BACKEND": "torch", **WITHOUT}
    outcomes = ranks.run(prefork.python("torch", "-c", MIXED), 2, variables=variables, timeout=120)
    output = "".join(outcome.output for outcome in outcomes)
    assert [outcome.exit_code for outcome in outcomes] == [0, 0], output
    for rank in (0, 1):
        assert f"rank {rank} MixedOperationsError" in output
        assert (
            f"this rank ({rank}) calls batchhvd.shape with torch.float32 ({2 + rank},), but ranks [{1 - rank}]"
            in output
        )
        assert output.count(f"rank {rank} length MixedOperationsError") == 1
        assert f"rank {rank} empty (2, 3)" in output
        assert f"rank {rank} nothing [(0, 2), (0, 2), (0, 2)]" in output
        assert f"rank {rank} scalars [3.0, [True, False], [1, 1]]" in output
    assert "rank 0 has [[0, 10, 11], [1, 2]]" in output
    assert "rank 1 has [[1, 2, 3, 12, 13], [3, 2]]" in output
    assert "rank 0 has [0.0, 2.0]" in output and "rank 1 has [4.0]" in output


def test_ranks_can_leave_and_join_again(tmp_path: Path) -> None:
    code = "import time, numpy as np; from batchhvd.trainer import hvd\nfor turn in range(3):\n    hvd.init()\n"
    code += "    time.sleep(0.3 * (1 - hvd.rank()))\n"  # the others come first
    code += "    print('sum', float(hvd.allreduce(np.float32(hvd.rank() + turn), op=hvd.Sum)))\n    hvd.shutdown()"
    outcomes = ranks.run(
        prefork.python("torch", "-c", code), 2, variables={"KERAS_BACKEND": "torch", **WITHOUT}, timeout=120
    )
    for outcome in outcomes:
        assert outcome.exit_code == 0, outcome.output
        assert [line for line in outcome.output.splitlines() if line.startswith("sum")] == [
            "sum 1.0",
            "sum 3.0",
            "sum 5.0",
        ]


def test_a_rank_that_dies_ends_the_others(tmp_path: Path) -> None:
    code = "import os, numpy as np; from batchhvd.trainer import hvd; hvd.init(); hvd.barrier()\n"
    code += "if hvd.rank() == 1: os._exit(7)\nhvd.allreduce(np.ones(3, 'float32'))"
    outcomes = ranks.run(
        prefork.python("torch", "-c", code), 2, variables={"KERAS_BACKEND": "torch", **WITHOUT}, timeout=120
    )
    assert outcomes[1].exit_code == 7 and outcomes[0].exit_code not in (0, None)
    assert "torch.distributed (gloo): BATCHHVD_EXCHANGE asks for it" in outcomes[0].output


def test_an_exchange_that_is_none_is_named() -> None:
    code = "from batchhvd.trainer import hvd; hvd.init()"
    variables = {"KERAS_BACKEND": "torch", "BATCHHVD_EXCHANGE": "nccl"}
    output = "".join(
        outcome.output
        for outcome in ranks.run(prefork.python("torch", "-c", code), 2, variables=variables, timeout=120)
    )
    assert "BATCHHVD_EXCHANGE is 'nccl'" in output and "auto, horovod, torch" in output
