"""Values that all ranks share: sums, averages, everybody's, rank 0's.

Each of these must be called by all ranks, in the same order. Tensors of the Keras backend give tensors; numbers,
lists and numpy arrays give numpy arrays.
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
    """Returns the reduction of all ranks' values, on every rank.

    Args:
        value: the same shape and type on all ranks. Averages of whole numbers are float64.
        name: only needed for values that are reduced at the same time.
        average: Horovod's older way of saying ``op``.
        op: `Average` (the default), `Sum`, `Min`, `Max` or `Product`.
        compression: how it travels.
    """
    return grouped_allreduce([value], name, average, op, compression)[0]


def grouped_allreduce(
    values: Sequence[ArrayLike | Tensor | keras.Variable],
    name: str | None = None,
    average: bool | None = None,
    op: Op | None = None,
    compression: Compressor = Compression.none,
) -> list[np.ndarray | Tensor]:
    """Returns the reductions of several values, in one go. See `allreduce`."""
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
        raise SpecError("average and op say the same thing", remedy="leave average out")
    if op is None:
        return Op.SUM if average is False else Op.AVERAGE
    return op


def _averageable(array: np.ndarray, op: Op) -> np.ndarray:
    whole = array.dtype.kind in "iub"
    return array.astype(np.float64) if whole and op is Op.AVERAGE else array


def _value(value: ArrayLike | Tensor | keras.Variable) -> ArrayLike | Tensor:
    """Takes the backend's tensor out of a Keras variable."""
    return value.value if hasattr(value, "value") and hasattr(value, "assign") and not callable(value.value) else value


def _is_tensor(value: object) -> bool:
    """Tells tensors and variables from numbers and arrays without knowing a backend."""
    return hasattr(value, "dtype") and not isinstance(value, (np.ndarray, np.generic))


def allgather(value: ArrayLike | Tensor | keras.Variable, name: str | None = None) -> np.ndarray | Tensor:
    """Returns the values of all ranks joined along their first dimension, which alone may differ."""
    binding = world().binding
    if binding is None:
        return value if _is_tensor(value) else np.atleast_1d(np.asarray(value))
    value = _value(value)
    name = f"batchhvd.{name or 'allgather'}"
    if binding.owns(value):
        return binding.gather(value, name)
    return binding.array(binding.gather(binding.tensor(np.atleast_1d(np.asarray(value))), name))


def broadcast(
    value: ArrayLike | Tensor | keras.Variable, root_rank: int = 0, name: str | None = None
) -> np.ndarray | Tensor:
    """Returns the value of one rank on all ranks.

    Args:
        value: the same shape and type on all ranks.
        root_rank: whose value it is.
        name: only needed for values that are sent at the same time.
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
    """Waits until all ranks have come here."""
    allreduce(np.zeros(1, np.float32), "barrier", op=Op.SUM)
