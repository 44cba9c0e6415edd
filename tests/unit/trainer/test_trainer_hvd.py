"""Horovod's names with one rank, where neither Keras nor Horovod is needed; schedules; the form of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from batchhvd.errors import SpecError
from batchhvd.trainer import hvd, schedule
from batchhvd.trainer.checkpoint import Checkpoints, Snapshot
from batchhvd.trainer.hvd import world
from batchhvd.trainer.hvd.collective import _op
from batchhvd.trainer.hvd.unsupported import INSTEAD
from batchhvd.trainer.install import COMMAND


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in world._SIZES:
        monkeypatch.delenv(name, raising=False)
    hvd.shutdown()
    yield
    hvd.shutdown()


def test_before_init_every_question_is_refused() -> None:
    for ask in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size, hvd.mpi_built):
        with pytest.raises(SpecError, match=r"call hvd\.init"):
            ask()
    assert hvd.is_initialized() is False


def test_one_rank_is_alone_and_needs_nothing() -> None:
    hvd.init()
    hvd.init()
    assert hvd.is_initialized() is True
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (
        *(0, 1),
        *(0, 1),
        *(0, 1),
    )
    assert (hvd.gloo_built(), hvd.mpi_built(), hvd.nccl_built()) == (False, False, False)


def test_one_ranks_values_come_back() -> None:
    hvd.init()
    assert hvd.allreduce(3) == 3.0
    assert hvd.allreduce([1, 2], average=False).tolist() == [1, 2]
    assert hvd.grouped_allreduce([1.5, np.array([2])], op=hvd.Sum)[1].tolist() == [2]
    assert hvd.allgather(5).tolist() == [5]
    assert hvd.broadcast(np.ones(2)).tolist() == [1, 1]
    assert hvd.broadcast_object({"a": 1}) == {"a": 1}
    assert hvd.allgather_object("x") == ["x"]
    hvd.barrier()


def test_a_part_of_the_ranks_is_refused() -> None:
    with pytest.raises(SpecError, match="all ranks"):
        hvd.init(comm=[0, 1])


@pytest.mark.parametrize("name", ["HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_the_launcher_says_how_many_ranks_there_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world.ranks_expected() == 1
    monkeypatch.setenv(name, "7")
    assert world.ranks_expected() == 7


def test_two_ways_of_saying_the_operation_are_one() -> None:
    assert (_op(None, None), _op(True, None), _op(False, None)) == (hvd.Average, hvd.Average, hvd.Sum)
    assert _op(None, hvd.Min) is hvd.Min
    with pytest.raises(SpecError):
        _op(True, hvd.Sum)


def test_the_remedy_is_the_installers_own_command() -> None:
    """hvd knows nothing of the installer, and its messages name its command."""
    assert world.REMEDY == COMMAND


def test_every_public_name_is_horovods_and_exists() -> None:
    later = {"DistributedGradientTape", "DistributedOptimizer", "broadcast_variables", "callbacks", "load_model"}
    assert sorted(hvd.__all__) == hvd.__all__
    assert all(hasattr(hvd, name) for name in hvd.__all__ if name not in later)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = hvd.no_such_name


@pytest.mark.parametrize("name", ["elastic", "join", "PartialDistributedOptimizer", "broadcast_global_variables"])
def test_what_is_not_supported_says_what_to_use(name: str) -> None:
    """The error says what to use instead, not only that there is no such attribute."""
    with pytest.raises(SpecError, match=rf"{name} is not supported on Keras 3; .{{20}}"):
        getattr(hvd, name)
    assert not hasattr(hvd, name)


#: Every public name of horovod.tensorflow, horovod.tensorflow.keras and horovod.keras, and some of horovod.torch.
HOROVODS = """
    Adasum Average Compression DistributedGradientTape DistributedOptimizer Max Min
    PartialDistributedGradientTape Product ProcessSet Sum SyncBatchNormalization add_process_set allgather
    allgather_object allreduce alltoall broadcast broadcast_ broadcast_global_variables broadcast_object
    broadcast_object_fn broadcast_variables callbacks ccl_built cross_rank cross_size cuda_built ddl_built
    elastic global_process_set gloo_built gloo_enabled grouped_allgather grouped_allreduce grouped_reducescatter
    init is_homogeneous is_initialized join load_model local_rank local_rank_op local_size local_size_op
    mpi_built mpi_enabled mpi_threads_supported nccl_built process_set_included_op rank rank_op reducescatter
    remove_process_set rocm_built shutdown size size_op start_timeline stop_timeline PartialDistributedOptimizer
    BroadcastGlobalVariablesHook broadcast_parameters broadcast_optimizer_state allreduce_ allreduce_async
    synchronize poll
"""


def test_every_name_of_horovods_works_or_is_refused_with_a_remedy() -> None:
    assert [name for name in HOROVODS.split() if name not in {*hvd.__all__, *INSTEAD}] == []


def test_the_rest_with_one_rank() -> None:
    hvd.init()
    assert np.asarray(hvd.alltoall([1, 2])).tolist() == [1, 2]
    assert hvd.reducescatter([1, 2]).tolist() == [1, 2]
    built = (hvd.gloo_enabled, hvd.mpi_enabled, hvd.mpi_threads_supported, hvd.ccl_built, hvd.cuda_built, hvd.ddl_built)
    assert not any(ask() for ask in (*built, hvd.rocm_built))
    assert hvd.is_homogeneous()
    hvd.start_timeline("nothing.json")
    hvd.stop_timeline()


# --- schedules -------------------------------------------------------------------------------------------------------


def test_scaling_follows_its_formula() -> None:
    assert [policy.rate(0.1, 16) for policy in (schedule.NONE, schedule.LINEAR, schedule.SQRT)] == pytest.approx(
        [0.1, 1.6, 0.4]
    )
    assert schedule.scaling("sqrt") is schedule.SQRT
    with pytest.raises(SpecError, match="none, linear or sqrt"):
        schedule.scaling("cubic")


def test_warm_up_goes_from_one_ranks_rate_to_the_full_one() -> None:
    warmup = schedule.Warmup(top=0.8, epochs=4, ranks=8)
    assert [warmup.rate(epoch) for epoch in (0, 2, 4, 9)] == pytest.approx([0.1, 0.45, 0.8, 0.8])
    assert schedule.Warmup(0.8, 0, 8).rate(0) == 0.8
    assert schedule.Warmup(0.8, 5, 1).rate(0) == 0.8


def test_the_tutorials_epochs() -> None:
    assert [schedule.tutorial_epochs(ranks) for ranks in (1, 3, 4, 7, 100, 128)] == [100, 34, 25, 15, 1, 1]


# --- checkpoints -----------------------------------------------------------------------------------------------------


def snapshot(epoch: int) -> Snapshot:
    weights = [np.full((2, 3), epoch, "float32"), np.zeros(0)]
    return Snapshot(epoch, 10 * epoch, 2, weights, [np.int64(epoch)], [{"a": np.uint8([1])}, {"python": "é"}])


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "neu ä")
    assert kept.latest() is None
    kept.write(snapshot(3))
    back = kept.latest()
    assert back is not None
    assert (back.epoch, back.step, back.ranks) == (3, 30, 2)
    assert [array.tolist() for array in back.weights] == [[[3, 3, 3], [3, 3, 3]], []]
    assert back.weights[0].dtype == np.float32 and int(back.optimizer[0]) == 3
    assert np.array_equal(back.randomness[0]["a"], [1])
    assert str(back.randomness[1]["python"]) == "é"


def test_bfloat16_comes_back_as_bfloat16(tmp_path: Path) -> None:
    types = pytest.importorskip("ml_dtypes")
    kept = Checkpoints(tmp_path)
    kept.write(Snapshot(1, 1, 1, [np.array([1.5, 2.0], types.bfloat16)], [], [{}]))
    back = kept.latest()
    assert back is not None
    assert back.weights[0].dtype == types.bfloat16
    assert back.weights[0].astype(float).tolist() == [1.5, 2.0]


def test_writers_that_are_killed_again_and_again_leave_one_checkpoint_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each dies right after its renaming. Seen to leave eight when the old ones were removed at the end only."""

    def die(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("batchhvd.trainer.checkpoint._sync", die)
    kept = Checkpoints(tmp_path / "kontroll punkte ä", keep=3)
    for epoch in range(1, 9):
        with pytest.raises(KeyboardInterrupt):
            kept.write(snapshot(epoch))
    assert [path.name for path in kept.paths()] == [f"checkpoint-{epoch:05}.npz" for epoch in (5, 6, 7, 8)]


def test_the_newest_are_kept_and_other_files_are_left_alone(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path, keep=2)
    (tmp_path / "checkpoint-notes.npz").write_text("mine")
    for epoch in (9, 99_999, 100_000):
        kept.write(snapshot(epoch))
    assert [path.name for path in kept.paths()] == ["checkpoint-99999.npz", "checkpoint-100000.npz"]
    assert (tmp_path / "checkpoint-notes.npz").exists()
    assert not list(tmp_path.glob("*.part"))


def test_a_snapshot_shows_itself_in_one_line() -> None:
    assert repr(snapshot(1)) == "Snapshot(epoch=1, step=10, ranks=2)"
