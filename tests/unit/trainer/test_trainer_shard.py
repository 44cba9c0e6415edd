"""Who trains on which sample: equal steps, nothing lost, and the same whatever the number of ranks."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from batchhvd.trainer import feed as feeding
from batchhvd.trainer.shard import Augment, Shard

# Arrays may be nested in any way; each test knows what it gets.
feed: Any = feeding.feed
share: Any = feeding.share
_in_memory: Any = feeding._in_memory

SIZES = st.integers(1, 60)


@given(samples=SIZES, batch=st.integers(1, 17), ranks=st.integers(1, 7), steps=st.integers(1, 12))
@settings(max_examples=150, deadline=None)
def test_no_sample_is_lost_or_preferred(samples: int, batch: int, ranks: int, steps: int) -> None:
    seen = Counter(
        int(number)
        for rank in range(ranks)
        for step in range(steps)
        for number in Shard(samples, batch, rank, ranks).at(step)[0]
    )
    assert sum(seen.values()) == steps * batch * ranks
    visits = [seen[number] for number in range(samples)]
    assert max(visits) - min(visits) <= 1


@given(samples=SIZES, batch=st.integers(1, 17), ranks=st.integers(1, 7))
@settings(deadline=None)
def test_every_rank_has_the_same_steps_and_an_epoch_covers_the_set(samples: int, batch: int, ranks: int) -> None:
    shards = [Shard(samples, batch, rank, ranks) for rank in range(ranks)]
    steps = {shard.steps for shard in shards}
    assert len(steps) == 1
    (count,) = steps
    assert (count - 1) * batch * ranks < samples <= count * batch * ranks
    seen = {int(number) for shard in shards for step in range(count) for number in shard.at(step)[0]}
    assert seen == set(range(samples))


@given(samples=SIZES, batch=st.integers(1, 8), ranks=st.integers(2, 5), step=st.integers(0, 20))
@settings(deadline=None)
def test_many_ranks_see_what_one_rank_with_a_larger_batch_sees(samples: int, batch: int, ranks: int, step: int) -> None:
    together = [Shard(samples, batch, rank, ranks, seed=3).at(step)[0] for rank in range(ranks)]
    alone = Shard(samples, batch * ranks, seed=3).at(step)[0]
    assert np.array_equal(np.concatenate(together), alone)


def test_augmentation_does_not_depend_on_the_number_of_ranks_and_differs_between_them() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    labels, augment = np.arange(40), Augment(shift=2, flip=True, hole=3)
    alone = _in_memory((pictures, labels), Shard(40, 12), augment, 2)
    parts = [_in_memory((pictures, labels), Shard(40, 4, rank, 3), augment, 2) for rank in range(3)]
    for together, whole in zip(zip(*parts, strict=True), alone, strict=True):
        assert np.array_equal(np.concatenate(together), whole)
    moves = [augment.moves(Shard(40, 4, rank, 3), 2) for rank in range(3)]
    assert not np.array_equal(moves[0], moves[1])


def test_the_same_seed_gives_the_same_and_another_seed_does_not() -> None:
    shards = [Shard(1000, 50, seed=seed) for seed in (5, 5, 6)]
    orders = [shard.at(0)[0] for shard in shards]
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])


def test_the_tutorials_ranks_walk_the_whole_set_each_in_an_order_of_its_own() -> None:
    first, second = (Shard(50_000, 32, rank, 4, whole=True) for rank in (0, 1))
    assert first.steps == second.steps == 1563
    assert not np.array_equal(first.at(0)[0], second.at(0)[0])
    seen = np.concatenate([second.at(step)[0] for step in range(1563)])[:50_000]
    assert np.array_equal(np.sort(seen), np.arange(50_000))


def test_a_picture_is_mirrored_on_every_other_lap() -> None:
    shard, augment = Shard(6, 6, seed=1), Augment(flip=True)
    laps = []
    for step in range(4):
        numbers, _ = shard.at(step)
        mirrored = augment.mirrored(shard, step)
        laps.append({int(number): bool(mirror) for number, mirror in zip(numbers, mirrored, strict=True)})
    assert laps[0] == laps[2] != laps[1] == laps[3]
    assert all(laps[0][number] != laps[1][number] for number in range(6))


def test_moving_repeats_the_edge_and_takes_nothing_from_the_other_side() -> None:
    picture: np.ndarray = np.arange(16, dtype=np.uint8).reshape(1, 4, 4, 1)
    for step in range(30):
        shard, augment = Shard(1, 1), Augment(shift=2)
        down, right = augment.moves(shard, step)[:, 0]
        (moved, _) = _in_memory((picture, np.zeros(1)), shard, augment, step, pictures=True)
        rows, columns = np.clip(np.arange(4) + down, 0, 3), np.clip(np.arange(4) + right, 0, 3)
        assert np.allclose(moved[0, :, :, 0] * 255, picture[0, rows][:, columns, 0])


def test_a_hole_is_black_and_as_large_as_it_should_be() -> None:
    white: np.ndarray = np.full((4, 9, 7, 3), 255, np.uint8)
    pictures, _ = _in_memory((white, np.zeros(4)), Shard(4, 4), Augment(hole=3), 0, pictures=True)
    assert ((pictures == 0).all(axis=3).sum(axis=(1, 2)) == 9).all()
    assert set(np.unique(pictures)) == {0.0, 1.0}


@pytest.mark.parametrize(("samples", "ranks"), [(10, 3), (2, 4), (360, 4)])
def test_what_is_tested_is_shared_without_leaving_a_rank_idle(samples: int, ranks: int) -> None:
    x: np.ndarray = np.full((samples, 2, 2, 1), 255, np.uint8)
    y = np.arange(samples)
    parts = [share((x, y), rank, ranks, pictures=True) for rank in range(ranks)]
    assert {int(label) for _, labels in parts for label in labels} == set(range(samples))
    assert all(len(labels) for _, labels in parts)
    assert parts[0][0].dtype == np.float32 and parts[0][0].max() == 1.0


def test_bytes_are_pictures_only_if_the_caller_says_so() -> None:
    """Tokens are bytes too, and some models scale by themselves."""
    x: NDArray[np.uint8] = np.arange(8, dtype=np.uint8).reshape(4, 2)
    y = np.arange(4)
    assert share((x, y), 0, 2)[0].tolist() == [[0, 1], [4, 5]]
    for step in range(2):
        batch, labels = _in_memory((x, y), Shard(4, 2), None, step)
        assert batch.dtype == np.uint8 and np.array_equal(batch, x[labels])
    scaled, labels = _in_memory((x, y), Shard(4, 4), None, 0, pictures=True)
    assert np.allclose(scaled * 255, x[labels])


def test_arrays_may_be_nested_and_keep_their_order() -> None:
    """Dictionaries and lists of arrays of different widths come in the order of the samples."""
    wide, narrow = np.arange(12).reshape(6, 2), np.arange(6)
    x = {"wide": wide, "pair": [narrow, wide]}
    part = feed((x, [0, 1, 2, 3, 4, 5]), batch_size=2, rank=1, ranks=2, shuffle=False)
    assert part.steps == 2
    taken, labels = part.source[0]
    assert labels.tolist() == taken["pair"][0].tolist() == [2, 3]
    assert np.array_equal(taken["wide"], wide[2:4]) and np.array_equal(taken["pair"][1], wide[2:4])
    shared, labels = share((x, narrow), 1, 3)
    assert labels.tolist() == shared["pair"][0].tolist() == [1, 4]


def test_a_few_samples_are_evaluated_by_all_so_that_none_counts_twice() -> None:
    assert [share((np.arange(2), np.arange(2)), rank, 3)[0].tolist() for rank in range(3)] == [[0, 1]] * 3
