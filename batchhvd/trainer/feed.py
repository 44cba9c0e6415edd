"""What Keras trains on: every form of data, reduced to the part of this rank, with equal steps on all ranks.

Arrays are shared sample by sample. Streams (``tf.data``, an iterable-style DataLoader) are shared batch by batch: rank
``r`` of ``N`` takes every N-th batch, so they must be shuffled in the same way on all ranks (give the shuffle a seed).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
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
    #: The arrays of a model with several inputs or outputs.
    Nested: TypeAlias = Array | Mapping[str, "Nested"] | Sequence["Nested"]
    #: Sources of batches that may say how many these are.
    Batches: TypeAlias = tf.data.Dataset | DataLoader | keras.utils.PyDataset
    #: What can be trained on: ``(x, y)`` or ``(x, y, sample_weight)``, or a source of batches.
    Samples: TypeAlias = Sequence[Nested] | Batches | Generator[object, None, None]
    #: The arrays of one step: inputs, targets, and perhaps weights.
    Batch: TypeAlias = tuple[Nested, ...]


@attrs.frozen
class Feed:
    """The training data of one rank, ready for ``model.fit(feed.source, steps_per_epoch=feed.steps)``.

    Attributes:
        source: an endless series of batches that begins at the first step of ``first_epoch``.
        steps: steps of one epoch, equal on all ranks.
        batch: samples of this rank per step (the usual number if batches differ).
    """

    source: keras.utils.PyDataset | tf.data.Dataset | DataLoader | Iterator[object] = attrs.field(repr=False)
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
    shuffle: bool = True,
) -> Feed:
    """Reduces ``data`` to the part of one rank.

    Args:
        data: arrays ``(x, y)`` or ``(x, y, sample_weight)``, each of which may be a list, tuple or dictionary of
            arrays; or a source of batches: a ``tf.data.Dataset``, a PyTorch DataLoader, a ``PyDataset`` or a generator.
        batch_size: samples of one rank per step; only for arrays, since other sources have a batch size of their own.
        rank, ranks: this rank, and the number of ranks.
        seed: decides the shuffles; the same on all ranks.
        augment: moves and mirrors pictures; only for arrays whose ``x`` is (n, height, width, channels).
        steps: steps of one epoch; None passes over the data once. Required if the length of the data is unknown.
        first_epoch: the epoch to begin with, counted from 0, for resuming.
        whole: lets every rank pass over all of the arrays, as the tutorial's script does.
        pictures: divides ``x`` by 255; only for arrays.
        shuffle: False takes arrays in their order.

    Raises:
        SpecError: The data is not of a known kind, or its length is unknown and ``steps`` is None.
    """
    if isinstance(data, (tuple, list)):
        data = tuple(map(normal, data))
        shard = Shard(_length(data), batch_size, rank, ranks, seed, whole, shuffle)
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
    if _is(data, "keras", "PyDataset"):
        return _dataset_feed(data, rank, ranks, steps, first_epoch, batch_size)
    if isinstance(data, Generator):
        return _generator_feed(data, rank, ranks, steps, first_epoch, batch_size)
    raise SpecError(
        f"cannot train on {type(data).__name__}",
        remedy="give arrays, a tf.data.Dataset, a DataLoader, a PyDataset or a generator",
    )


def normal(data: object) -> Nested:
    """Returns arrays in the lists, tuples and dictionaries in which they were given; lists of numbers become arrays."""
    if isinstance(data, Mapping):
        return {name: normal(part) for name, part in data.items()}
    if isinstance(data, (list, tuple)) and any(_is_rows(part) for part in data):
        return tuple(map(normal, data))
    return data if _on_gpu(data) else np.asarray(data)


def _is_rows(part: object) -> bool:
    return isinstance(part, Mapping) or len(getattr(part, "shape", ())) > 0


def _each(change: Callable[[Array], Array], data: Nested) -> Nested:
    """Returns nested arrays of which each was changed."""
    if isinstance(data, Mapping):
        return {name: _each(change, part) for name, part in data.items()}
    return tuple(_each(change, part) for part in data) if isinstance(data, tuple) else change(data)


def _leaves(data: Nested) -> Iterator[Array]:
    """Yields the arrays of a nested structure."""
    if isinstance(data, (Mapping, tuple)):
        for part in data.values() if isinstance(data, Mapping) else data:
            yield from _leaves(part)
    else:
        yield data


def share(arrays: Sequence[Nested], rank: int, ranks: int, pictures: bool = False) -> Batch:
    """Returns this rank's part of arrays that are read once, in order; all of them if there are fewer than ranks.

    Args:
        arrays: ``x`` and others with one row per sample.
        rank, ranks: this rank, and the number of ranks.
        pictures: divides ``x`` by 255.
    """
    arrays = tuple(map(normal, arrays))
    part = slice(rank, None, ranks) if _length(arrays) >= ranks else slice(None)
    x, *others = (_each(lambda array: array[part], nested) for nested in arrays)
    return (_each(_scaled, x) if pictures else x, *others)


def share_batches(data: Batches, rank: int, ranks: int) -> Batches:
    """Returns this rank's part of batches that are read once; all of them if they are few or nobody knows how many."""
    if _is(data, "tensorflow", "DatasetV2"):
        return data.shard(ranks, rank) if int(data.cardinality()) >= ranks else data
    if _is(data, "keras", "PyDataset"):
        count = data.num_batches or 0
        return _finite(data, range(rank, count, ranks)) if count >= ranks else data
    if _is(data, "torch", "DataLoader"):
        return _part_of_loader(data, rank, ranks) if hasattr(data.dataset, "__len__") and len(data) >= ranks else data
    raise SpecError(
        f"cannot evaluate on {type(data).__name__}",
        remedy="give arrays, a tf.data.Dataset, a DataLoader or a PyDataset",
    )


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


def _length(arrays: Sequence[Nested]) -> int:
    lengths = {len(array) for array in _leaves(tuple(arrays))}
    if len(lengths) != 1 or 0 in lengths:
        raise SpecError(f"arrays have lengths {sorted(lengths)}", remedy="give x and y with one row per sample")
    return int(lengths.pop())


def _array_source(
    arrays: Batch, shard: Shard, augment: Augment | None, start: int, pictures: bool
) -> keras.utils.PyDataset:
    if augment is not None and isinstance(arrays[0], (tuple, Mapping)):
        raise SpecError("augment is for models with one input", remedy="augment in the model or in a PyDataset")
    batch: Callable[[Batch, Shard, Augment | None, int, bool], Batch]
    if _on_gpu(arrays[0]):
        from batchhvd.trainer import torch_cuda

        batch = torch_cuda.batch
    else:
        batch = _in_memory
    return endless(lambda step: batch(arrays, shard, augment, start + step, pictures))


def _on_gpu(array: object) -> bool:
    return str(getattr(array, "device", "cpu")).startswith("cuda")


def endless(batch: Callable[[int], Batch], like: keras.utils.PyDataset | None = None) -> keras.utils.PyDataset:
    """Returns an endless Keras data set whose batch number ``step`` is ``batch(step)``.

    Args:
        batch: returns one batch.
        like: a data set with the workers to use, which is told when epochs begin and end.
    """
    import keras

    kept = () if like is None else ("workers", "use_multiprocessing", "max_queue_size")

    class Endless(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
        @property
        def num_batches(self) -> None:
            return None

        def __getitem__(self, step: int) -> Batch:
            return batch(step)

        def on_epoch_end(self) -> None:
            if like is not None:
                like.on_epoch_end()

    return Endless(**{name: getattr(like, name) for name in kept})


def _in_memory(arrays: Batch, shard: Shard, augment: Augment | None, step: int, pictures: bool = False) -> Batch:
    x, *others = arrays
    numbers, _ = shard.at(step)
    chosen = _augmented(x, shard, augment, step) if augment is not None else _each(lambda array: array[numbers], x)
    taken = (_each(lambda array: array[numbers], nested) for nested in others)
    return (_each(_scaled, chosen) if pictures else chosen, *taken)


def _augmented(x: Nested, shard: Shard, augment: Augment, step: int) -> np.ndarray:
    x = np.asarray(x)
    height, width = x.shape[1:3]
    chosen = _gathered(x, shard.at(step)[0], *augment.grid(shard, step, height, width))
    if augment.hole:
        top, left = augment.holes(shard, step, height, width)[:, :, None]  # (batch, 1) each
        rows, columns = np.arange(height), np.arange(width)
        across = (rows >= top) & (rows < top + augment.hole)  # (batch, height)
        along = (columns >= left) & (columns < left + augment.hole)  # (batch, width)
        chosen[across[:, :, None] & along[:, None, :]] = augment.paint
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


def _part_of_loader(loader: DataLoader, rank: int, ranks: int) -> DataLoader:
    from torch.utils.data import DataLoader, IterableDataset

    class LoaderPart(IterableDataset):  # type: ignore[misc]  # torch is not imported for types
        def __iter__(self) -> Iterator[object]:
            return itertools.islice(loader, rank, None, ranks)

        def __len__(self) -> int:  # without it Keras warns that the data has ended
            return len(range(rank, len(loader), ranks))

    return DataLoader(LoaderPart(), batch_size=None)


def _dataset_feed(
    data: keras.utils.PyDataset, rank: int, ranks: int, steps: int | None, first_epoch: int, batch_size: int
) -> Feed:
    batches = data.num_batches
    if batches is None and steps is None:
        raise SpecError("the PyDataset does not say how many batches it has", remedy="give steps_per_epoch")
    count = steps or math.ceil(batches / ranks)

    def batch(step: int) -> Batch:
        number = (first_epoch * count + step) * ranks + rank
        found: Batch = data[number if batches is None else number % batches]
        return found

    return Feed(endless(batch, data), count, batch_size)


def _finite(data: keras.utils.PyDataset, numbers: Sequence[int]) -> keras.utils.PyDataset:
    import keras

    class DatasetPart(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
        def __len__(self) -> int:
            return len(numbers)

        def __getitem__(self, place: int) -> Batch:
            found: Batch = data[numbers[place]]
            return found

    return DatasetPart()


def _generator_feed(
    data: Generator[object, None, None], rank: int, ranks: int, steps: int | None, first_epoch: int, batch_size: int
) -> Feed:
    if steps is None:
        raise SpecError("a generator does not say how many batches it has", remedy="give steps_per_epoch")

    def mine() -> Iterator[object]:
        yield from itertools.islice(data, rank + first_epoch * steps * ranks, None, ranks)
        raise SpecError("the generator ended before the training", remedy="let it begin again, without end")

    return Feed(mine(), steps, batch_size)
