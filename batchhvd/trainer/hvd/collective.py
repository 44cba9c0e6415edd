"""Collective operations: sums, averages, the values of all ranks, the value of one rank.

All ranks must call these functions in the same order. Given tensors of the Keras backend they return tensors; given
numbers, lists and numpy arrays they return numpy arrays.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.binding import Binding, Compression, Compressor, Op
from batchhvd.trainer.hvd.world import world

if TYPE_CHECKING:
    import keras
    from numpy.typing import ArrayLike

    from batchhvd.trainer.hvd.binding import Tensor

_T = TypeVar("_T")


def allreduce(
    value: ArrayLike | Tensor | keras.Variable,
    name: str | None = None,
    average: bool | None = None,
    op: Op | None = None,
    compression: Compressor = Compression.none,
) -> np.ndarray | Tensor:
    """Returns the combined value of all ranks, on every rank.

    Args:
        value: the same shape and type on all ranks. Averages of integers are float64.
        name: only needed if several values are reduced at the same time.
        average: Horovod's older form of ``op``.
        op: `Average` (the default), `Sum`, `Min`, `Max` or `Product`.
        compression: how the value is sent.
    """
    return grouped_allreduce([value], name, average, op, compression)[0]


def grouped_allreduce(
    values: Sequence[ArrayLike | Tensor | keras.Variable],
    name: str | None = None,
    average: bool | None = None,
    op: Op | None = None,
    compression: Compressor = Compression.none,
) -> list[np.ndarray | Tensor]:
    """Returns the combined values of all ranks for several values, in one operation; see `allreduce`."""
    how = _op(average, op)
    binding = world().binding
    if binding is None:
        return [value if _is_tensor(value) else _averageable(np.asarray(value), how) for value in values]
    tensors = [_value(value) for value in values]
    native = [binding.owns(value) for value in tensors]
    sent = [
        value if own else binding.tensor(_averageable(np.asarray(value), how))
        for value, own in zip(tensors, native, strict=True)
    ]
    found = binding.reduce(sent, f"batchhvd.{name or 'allreduce'}", how, compression)
    return [value if own else binding.array(value) for value, own in zip(found, native, strict=True)]


def _op(average: bool | None, op: Op | None) -> Op:
    if average is not None and op is not None:
        raise SpecError("average and op cannot both be given", remedy="leave average out")
    if op is None:
        return Op.SUM if average is False else Op.AVERAGE
    return op


def _averageable(array: np.ndarray, op: Op) -> np.ndarray:
    whole = array.dtype.kind in "iub"
    return array.astype(np.float64) if whole and op is Op.AVERAGE else array


def _value(value: ArrayLike | Tensor | keras.Variable) -> ArrayLike | Tensor:
    """Returns the backend's tensor of a Keras variable, and other values unchanged."""
    return value.value if hasattr(value, "value") and hasattr(value, "assign") and not callable(value.value) else value


def _is_tensor(value: object) -> bool:
    """Returns whether a value is a tensor or variable of any backend, not a number or array."""
    return hasattr(value, "dtype") and not isinstance(value, (np.ndarray, np.generic))


def allgather(value: ArrayLike | Tensor | keras.Variable, name: str | None = None) -> np.ndarray | Tensor:
    """Returns the values of all ranks joined along the first dimension, the only one that may differ."""
    binding = world().binding
    if binding is None:
        return value if _is_tensor(value) else np.atleast_1d(np.asarray(value))
    value = _value(value)
    name = f"batchhvd.{name or 'allgather'}"
    if binding.owns(value):
        return binding.gather(value, name)
    return binding.array(binding.gather(binding.tensor(np.atleast_1d(np.asarray(value))), name))


def alltoall(
    value: ArrayLike | Tensor | keras.Variable, splits: ArrayLike | Tensor | None = None, name: str | None = None
) -> np.ndarray | Tensor | tuple[np.ndarray | Tensor, ...]:
    """Sends to each rank its part of a value, and returns the parts that all ranks sent to this one.

    Args:
        value: its first dimension is divided among the ranks.
        splits: how many rows go to each rank; None sends the same number to all.
        name: only needed if several values are sent at the same time.

    Returns:
        The joined parts; with ``splits`` also how many rows came from each rank.
    """
    binding = world().binding
    if binding is None:
        alone = value if _is_tensor(value) else np.asarray(value)
        return alone if splits is None else (alone, np.asarray(splits))
    value = _value(value)
    native = binding.owns(value)
    sent = value if native else binding.tensor(np.asarray(value))
    parts = splits if splits is None or binding.owns(splits) else binding.tensor(np.asarray(splits, np.int32))
    found = binding.module.alltoall(sent, parts, name=f"batchhvd.{name or 'alltoall'}")
    if splits is None:
        return found if native else binding.array(found)
    return tuple(found) if native else tuple(map(binding.array, found))


def reducescatter(
    value: ArrayLike | Tensor | keras.Variable, name: str | None = None, op: Op = Op.AVERAGE
) -> np.ndarray | Tensor:
    """Returns this rank's part of the combined value of all ranks, divided along the first dimension.

    Args:
        value: the same shape and type on all ranks.
        name: only needed if several values are reduced at the same time.
        op: `Average` or `Sum`.
    """
    binding = world().binding
    if binding is None:
        return value if _is_tensor(value) else _averageable(np.asarray(value), op)
    value = _value(value)
    native = binding.owns(value)
    sent = value if native else binding.tensor(_averageable(np.asarray(value), op))
    how = getattr(binding.module, op.value)
    found = binding.module.reducescatter(sent, op=how, name=f"batchhvd.{name or 'reducescatter'}")
    return found if native else binding.array(found)


def broadcast(
    value: ArrayLike | Tensor | keras.Variable, root_rank: int = 0, name: str | None = None
) -> np.ndarray | Tensor:
    """Returns the value of one rank on all ranks.

    Args:
        value: the same shape and type on all ranks.
        root_rank: the rank whose value is returned.
        name: only needed if several values are sent at the same time.
    """
    binding = world().binding
    if binding is None:
        return value if _is_tensor(value) else np.asarray(value)
    value = _value(value)
    name = f"batchhvd.{name or 'broadcast'}"
    if binding.owns(value):
        return binding.broadcast(value, root_rank, name)
    return _broadcast_array(binding, np.asarray(value), root_rank, name)


def _broadcast_array(binding: Binding, array: np.ndarray, root: int, name: str) -> np.ndarray:
    received: np.ndarray = binding.array(binding.broadcast(binding.tensor(array), root, name))
    shaped: np.ndarray = received.reshape(array.shape)
    return shaped


def broadcast_object(obj: _T, root_rank: int = 0, name: str | None = None) -> _T:
    """Returns one rank's object on all ranks; it must be picklable."""
    place = world()
    if place.binding is None:
        return obj
    name = f"batchhvd.{name or 'broadcast_object'}"
    mine = place.rank == root_rank
    data = np.frombuffer(pickle.dumps(obj), np.uint8) if mine else np.zeros(0, np.uint8)
    length = _broadcast_array(place.binding, np.array([len(data)], np.int64), root_rank, f"{name}.length")
    buffer = data.copy() if mine else np.zeros(int(length[0]), np.uint8)
    received = _broadcast_array(place.binding, buffer, root_rank, f"{name}.data")
    theirs: _T = obj if mine else pickle.loads(received.tobytes())
    return theirs


def allgather_object(obj: _T, name: str | None = None) -> list[_T]:
    """Returns the objects of all ranks, in the order of ranks; they must be picklable."""
    binding = world().binding
    if binding is None:
        return [obj]
    data = np.frombuffer(pickle.dumps(obj), np.uint8).copy()
    lengths = allgather(np.array([len(data)], np.int64), f"{name or 'allgather_object'}.lengths")
    joined = allgather(data, f"{name or 'allgather_object'}.data")
    parts = np.split(joined, np.cumsum(lengths)[:-1])
    return [pickle.loads(part.tobytes()) for part in parts]


def barrier() -> None:
    """Waits until all ranks have called it."""
    allreduce(np.zeros(1, np.float32), "barrier", op=Op.SUM)
