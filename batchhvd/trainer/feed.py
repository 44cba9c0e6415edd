"""What Keras trains on: every form of data, reduced to the part of this rank, with equal steps on all ranks.

Arrays are shared sample by sample. Streams (``tf.data``, an iterable-style DataLoader) are shared batch by batch: rank
``r`` of ``N`` takes every N-th batch, so they must be shuffled in the same way on all ranks (give the shuffle a seed).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from batchhvd.errors import SpecError
from batchhvd.trainer.shard import Augment, Shard

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    import torch
    from torch.utils.data import DataLoader

    #: One row per sample, in memory or on a GPU.
    Array: TypeAlias = np.ndarray | torch.Tensor
    #: What can be trained on: ``(x, y)`` or ``(x, y, sample_weight)``, or a source of batches.
    Samples: TypeAlias = Sequence[Array] | tf.data.Dataset | DataLoader
    Batch: TypeAlias = tuple[Array, ...]


@attrs.frozen
class Feed:
    """The training data of one rank, ready for ``model.fit(feed.source, steps_per_epoch=feed.steps)``.

    Attributes:
        source: an endless series of batches that begins at the first step of ``first_epoch``.
        steps: steps of one epoch, equal on all ranks.
        batch: samples of this rank per step (the usual number if batches differ).
    """

    source: keras.utils.PyDataset | tf.data.Dataset | DataLoader = attrs.field(repr=False)
    steps: int
    batch: int


def feed(
    data: Samples,
    *,
    batch_size: int,
    rank: int,
    ranks: int,
    seed: int = 0,
    augment: Augment | None = None,
    steps: int | None = None,
    first_epoch: int = 0,
    whole: bool = False,
    pictures: bool = False,
) -> Feed:
    """Reduces ``data`` to the part of one rank.

    Args:
        data: arrays ``(x, y)`` or ``(x, y, sample_weight)``, a ``tf.data.Dataset`` of batches, or a PyTorch DataLoader.
        batch_size: samples of one rank per step; only for arrays, since other sources have a batch size of their own.
        rank, ranks: this rank, and the number of ranks.
        seed: decides the shuffles; the same on all ranks.
        augment: moves and mirrors pictures; only for arrays whose ``x`` is (n, height, width, channels).
        steps: steps of one epoch; None passes over the data once. Required if the length of the data is unknown.
        first_epoch: the epoch to begin with, counted from 0, for resuming.
        whole: lets every rank pass over all of the arrays, as the tutorial's script does.
        pictures: divides ``x`` by 255; only for arrays.

    Raises:
        SpecError: The data is not of a known kind, or its length is unknown and ``steps`` is None.
    """
    if isinstance(data, (tuple, list)):
        data = tuple(array if _on_gpu(array) else np.asarray(array) for array in data)
        shard = Shard(_length(data), batch_size, rank, ranks, seed, whole)
        count = steps or shard.steps
        return Feed(_array_source(data, shard, augment, first_epoch * count, pictures), count, batch_size)
    if augment is not None or pictures:
        raise SpecError(
            f"augment and pictures are for arrays, not for {type(data).__name__}",
            remedy="augment and scale where the batches are made",
        )
    if _is(data, "tensorflow", "DatasetV2"):
        return _tf_feed(data, rank, ranks, steps, first_epoch, batch_size)
    if _is(data, "torch", "DataLoader"):
        return _loader_feed(data, rank, ranks, seed, steps, first_epoch)
    raise SpecError(f"cannot train on {type(data).__name__}", remedy="give arrays, a tf.data.Dataset or a DataLoader")


def share(arrays: Sequence[Array], rank: int, ranks: int, pictures: bool = False) -> Batch:
    """Returns this rank's part of arrays that are read once, in order.

    With more ranks than samples the surplus ranks get samples a second time, so that no rank is idle.

    Args:
        arrays: ``x`` and others with one row per sample.
        rank, ranks: this rank, and the number of ranks.
        pictures: divides ``x`` by 255.
    """
    part = slice(rank % len(arrays[0]), None, ranks)
    x, *others = (array[part] for array in arrays)
    return (_scaled(x) if pictures else x, *others)


def _scaled(x: Array) -> Array:
    """Returns pictures with values 0 to 255 as values 0 to 1."""
    if isinstance(x, np.ndarray):
        return x * np.float32(1 / 255) if x.dtype.kind in "iu" else x * x.dtype.type(1 / 255)
    return x * (1 / 255)  # a PyTorch tensor becomes float32 by itself


def _is(data: object, package: str, name: str) -> bool:
    # By name, so that data of one framework does not import the other framework.
    kinds = type(data).__mro__
    return any(kind.__name__ == name and kind.__module__.split(".")[0] == package for kind in kinds)


# --- arrays --------------------------------------------------------------------------------------------------------


def _length(arrays: Sequence[Array]) -> int:
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1 or 0 in lengths:
        raise SpecError(f"arrays have lengths {sorted(lengths)}", remedy="give x and y with one row per sample")
    return int(lengths.pop())


def _array_source(
    arrays: Batch, shard: Shard, augment: Augment | None, start: int, pictures: bool
) -> keras.utils.PyDataset:
    if _on_gpu(arrays[0]):
        from batchhvd.trainer.torch_cuda import batch
    else:
        batch = _in_memory
    return endless(lambda step: batch(arrays, shard, augment, start + step, pictures))


def _on_gpu(array: object) -> bool:
    return str(getattr(array, "device", "cpu")).startswith("cuda")


def endless(batch: Callable[[int], Batch]) -> keras.utils.PyDataset:
    """Returns an endless Keras data set whose batch number ``step`` is ``batch(step)``."""
    import keras

    class Endless(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
        @property
        def num_batches(self) -> None:
            return None

        def __getitem__(self, step: int) -> Batch:
            return batch(step)

    return Endless()


def _in_memory(
    arrays: Sequence[np.ndarray], shard: Shard, augment: Augment | None, step: int, pictures: bool = False
) -> Batch:
    x, *others = arrays
    numbers, _ = shard.at(step)
    chosen = x[numbers] if augment is None else _augmented(x, shard, augment, step)
    return (_scaled(chosen) if pictures else chosen, *(array[numbers] for array in others))


def _augmented(x: np.ndarray, shard: Shard, augment: Augment, step: int) -> np.ndarray:
    height, width = x.shape[1:3]
    chosen = _gathered(x, shard.at(step)[0], *augment.grid(shard, step, height, width))
    if augment.hole:
        top, left = augment.holes(shard, step, height, width)[:, :, None]  # (batch, 1) each
        rows, columns = np.arange(height), np.arange(width)
        across = (rows >= top) & (rows < top + augment.hole)  # (batch, height)
        along = (columns >= left) & (columns < left + augment.hole)  # (batch, width)
        chosen[across[:, :, None] & along[:, None, :]] = 0
    return chosen


def _gathered(
    x: np.ndarray, numbers: NDArray[np.int64], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> np.ndarray:
    # One flat take is four times as fast as indexing with three arrays.
    _, height, width, channels = x.shape
    lines = numbers[:, None] * height + rows  # (batch, height)
    pixels = lines[:, :, None] * width + columns[:, None, :]  # (batch, height, width)
    return x.reshape(-1, channels).take(pixels, axis=0)  # (batch, height, width, channels)


# --- streams -------------------------------------------------------------------------------------------------------


def _tf_feed(
    data: tf.data.Dataset, rank: int, ranks: int, steps: int | None, first_epoch: int, batch_size: int
) -> Feed:
    batches = int(data.cardinality())  # -1 endless, -2 unknown
    if steps is None and batches < 1:
        raise SpecError("the tf.data.Dataset does not say how many batches it has", remedy="give steps_per_epoch")
    count = steps or math.ceil(batches / ranks)
    return Feed(data.repeat().shard(ranks, rank).skip(first_epoch * count), count, batch_size)


def _loader_feed(loader: DataLoader, rank: int, ranks: int, seed: int, steps: int | None, first_epoch: int) -> Feed:
    from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

    if isinstance(loader.dataset, IterableDataset) or type(loader.sampler) not in (RandomSampler, SequentialSampler):
        return _stream_feed(loader, rank, ranks, steps, first_epoch)
    shard = Shard(len(loader.dataset), loader.batch_size, rank, ranks, seed)
    count = steps or shard.steps
    return Feed(_resampled(loader, _SampleNumbers(shard, first_epoch * count)), count, loader.batch_size)


def _resampled(loader: DataLoader, numbers: _SampleNumbers) -> DataLoader:
    """Returns the same loader for the samples of this rank, with the same workers and collation."""
    from torch.utils.data import DataLoader

    kept = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "persistent_workers")
    return DataLoader(loader.dataset, batch_sampler=numbers, **{name: getattr(loader, name) for name in kept})


@attrs.frozen
class _SampleNumbers:
    """Yields the sample numbers of one step after another, without end."""

    shard: Shard
    start: int

    def __iter__(self) -> Iterator[list[int]]:
        return (self.shard.at(step)[0].tolist() for step in itertools.count(self.start))

    def __len__(self) -> int:
        return 1 << 40  # Keras asks for it, and starts again from the first batch after so many


def _stream_feed(loader: DataLoader, rank: int, ranks: int, steps: int | None, first_epoch: int) -> Feed:
    from torch.utils.data import DataLoader, IterableDataset

    if steps is None and not hasattr(loader.dataset, "__len__"):
        raise SpecError("the DataLoader does not say how many batches it has", remedy="give steps_per_epoch")
    count = steps or math.ceil(len(loader) / ranks)

    class RankStream(IterableDataset):  # type: ignore[misc]  # torch is not imported for types
        def __iter__(self) -> Iterator[object]:
            endless = itertools.chain.from_iterable(loader for _ in itertools.count())
            return itertools.islice(endless, rank + first_epoch * count * ranks, None, ranks)

    return Feed(DataLoader(RankStream(), batch_size=None), count, loader.batch_size or 1)
