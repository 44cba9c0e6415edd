"""Horovod on TensorFlow, in eager code and in graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import tensorflow as tf

from batchhvd.trainer.hvd.binding import Compressor, Op

if TYPE_CHECKING:
    import numpy as np

    from batchhvd.trainer.hvd.binding import Tensor


class TensorFlowBinding:
    """Implements `binding.Binding` with ``horovod.tensorflow``."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def owns(self, value: object) -> bool:
        """Returns whether a value is a tensor or a variable of TensorFlow."""
        return bool(tf.is_tensor(value)) or isinstance(value, tf.Variable)

    def tensor(self, array: np.ndarray) -> tf.Tensor:
        """Converts a numpy array to a tensor."""
        return tf.convert_to_tensor(array)

    def array(self, tensor: tf.Tensor) -> np.ndarray:
        """Converts a tensor to a numpy array."""
        array: np.ndarray = tensor.numpy()
        return array

    def reduce(self, tensors: Sequence[Tensor], name: str, op: Op, compression: Compressor) -> list[Tensor]:
        """Reduces tensors over all ranks: dense ones of one type as a group, sparse ones one by one."""
        name = _unique(name)
        reduced: list[Tensor] = [None] * len(tensors)
        groups: dict[tf.DType, list[int]] = {}
        for place, tensor in enumerate(tensors):
            if isinstance(tensor, tf.IndexedSlices):
                reduced[place] = self._reduce_sparse(tensor, f"{name}.{place}", op)
            else:
                groups.setdefault(tensor.dtype, []).append(place)
        for dtype, places in groups.items():
            group = [tf.convert_to_tensor(tensors[place]) for place in places]
            found = self._reduce_group(group, f"{name}.{dtype.name}", op, compression)
            for place, tensor in zip(places, found, strict=True):
                reduced[place] = tensor
        return reduced

    def _reduce_group(self, tensors: list[tf.Tensor], name: str, op: Op, compression: Compressor) -> list[tf.Tensor]:
        dtype = tensors[0].dtype
        if dtype == tf.bfloat16:  # Horovod does not know it
            found = self._grouped([tf.cast(tensor, tf.float32) for tensor in tensors], name, op)
            return [tf.cast(tensor, dtype) for tensor in found]
        if not (compression.half and dtype in (tf.float32, tf.float64)):
            return self._grouped(tensors, name, op)
        share = 1.0 / self.module.size() if op is Op.AVERAGE else 1.0
        small = [tf.cast(tensor * tf.cast(share, dtype), tf.float16) for tensor in tensors]
        total = self._grouped(small, name, Op.SUM if op is Op.AVERAGE else op)
        return [tf.cast(tensor, dtype) for tensor in total]

    def _grouped(self, tensors: list[tf.Tensor], name: str, op: Op) -> list[tf.Tensor]:
        how = getattr(self.module, op.value)
        found = self.module.grouped_allreduce(tensors, op=how, name=name, ignore_name_scope=True)
        # The operation comes from a library that TensorFlow does not know, so the shapes are lost.
        return [tf.ensure_shape(new, old.shape) for new, old in zip(found, tensors, strict=True)]

    def _reduce_sparse(self, slices: tf.IndexedSlices, name: str, op: Op) -> tf.IndexedSlices:
        """Joins the rows of all ranks; rows that occur several times are added up when they are applied."""
        dtype = slices.values.dtype
        sent = tf.cast(slices.values, tf.float32) if dtype == tf.bfloat16 else slices.values
        values = tf.cast(self.gather(sent, f"{name}.values"), dtype)
        indices = self.gather(slices.indices, f"{name}.indices")
        if op is Op.AVERAGE:
            values = values / tf.cast(self.module.size(), values.dtype)
        return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)

    def require_equal(self, found: tf.Tensor, expected: tf.Tensor, message: str) -> None:
        """Raises an error, in a graph when the step runs, unless two numbers are equal."""
        tf.debugging.assert_near(found, tf.cast(expected, found.dtype), 0.0, 0.01, message=message)

    def gather(self, tensor: tf.Tensor, name: str) -> tf.Tensor:
        """Joins tensors of all ranks along the first dimension."""
        tensor = tf.convert_to_tensor(tensor)
        found = self.module.allgather(tensor, name=name, ignore_name_scope=True)
        return tf.ensure_shape(found, [None, *tensor.shape[1:]])

    def broadcast(self, tensor: tf.Tensor, root: int, name: str) -> tf.Tensor:
        """Returns the tensor of one rank on all ranks."""
        return self.module.broadcast(tf.convert_to_tensor(tensor), root, name=name, ignore_name_scope=True)


def _unique(name: str) -> str:
    """Returns a unique name within a graph, because TensorFlow may run two reductions at the same time."""
    if tf.executing_eagerly():
        return name
    unique: Callable[[str], str] = tf.compat.v1.get_default_graph().unique_name
    return unique(name)
