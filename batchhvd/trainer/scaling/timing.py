"""The seam at which the exchange is timed: a binding around the binding notes when each reduction begins and ends.

A reduction begins when all gradients of its rank are there; Horovod's grouped operation waits for them too, so nothing
that would overlap otherwise is held back. In a graph of TensorFlow the times are operations of the graph.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import keras

from batchhvd.trainer.hvd.binding import Binding, Compressor, Op

if TYPE_CHECKING:
    import numpy as np

    from batchhvd.trainer.hvd.binding import Tensor


class TimedBinding:
    """Implements `binding.Binding` with another one, and notes what its reductions take.

    Attributes:
        module: that of the other one.
        inside: whether a step runs; only then reductions are counted.
        dense: bytes of dense tensors, by the name of the reduction.
        sparse: names of reductions with sparse tensors.
    """

    def __init__(self, inner: Binding) -> None:
        self.inner = inner
        self.module: ModuleType = inner.module
        self.inside = False
        self.dense: dict[str, float] = {}
        self.sparse: set[str] = set()
        self._eager = [0.0, 0.0]
        self._graph: keras.Variable | None = None
        if keras.config.backend() == "tensorflow":
            import tensorflow as tf

            self._graph = tf.Variable([0.0, 0.0], dtype=tf.float64, trainable=False)  # seconds, sparse bytes

    def read(self) -> tuple[float, float]:
        """Returns the seconds of all reductions so far, and the bytes of their sparse tensors."""
        graph = self._graph.numpy() if self._graph is not None else (0.0, 0.0)
        return self._eager[0] + float(graph[0]), self._eager[1] + float(graph[1])

    def reduce(self, tensors: Sequence[Tensor], name: str, op: Op, compression: Compressor) -> list[Tensor]:
        """Reduces several tensors over all ranks, and notes the time."""
        if self.inside:
            self._note(tensors, name, compression)
        if _in_graph():
            return self._reduce_in_graph(tensors, name, op, compression)
        began = time.perf_counter()
        found = self.inner.reduce(tensors, name, op, compression)
        self._eager[0] += time.perf_counter() - began
        return found

    def _note(self, tensors: Sequence[Tensor], name: str, compression: Compressor) -> None:
        dense = [tensor for tensor in tensors if not hasattr(tensor, "dense_shape")]
        self.dense[name] = sum(_bytes(tensor, compression) for tensor in dense)
        if len(dense) < len(tensors):
            self.sparse.add(name)

    def _reduce_in_graph(self, tensors: Sequence[Tensor], name: str, op: Op, how: Compressor) -> list[Tensor]:
        import tensorflow as tf

        def flat(values: Sequence[Tensor]) -> list[tf.Tensor]:
            found: list[tf.Tensor] = tf.nest.flatten(list(values), expand_composites=True)
            return found

        with tf.control_dependencies(flat(tensors)):
            began = tf.timestamp()
        with tf.control_dependencies([began]):
            held = [tf.nest.map_structure(tf.identity, tensor, expand_composites=True) for tensor in tensors]
        found = self.inner.reduce(held, name, op, how)
        with tf.control_dependencies(flat(found)):
            taken = tf.timestamp() - began
        rows = [tensor.values for tensor in held if hasattr(tensor, "dense_shape")]
        sent = [tf.cast(tf.size(values) * values.dtype.size, tf.float64) for values in rows]
        assert self._graph is not None
        self._graph.assign_add(tf.stack([taken, tf.add_n(sent) if sent else tf.constant(0.0, tf.float64)]))
        return found

    def owns(self, value: object) -> bool:
        """Returns whether a value is a tensor of this backend."""
        return self.inner.owns(value)

    def tensor(self, array: np.ndarray) -> Tensor:
        """Converts a numpy array to a tensor on the CPU."""
        return self.inner.tensor(array)

    def array(self, tensor: Tensor) -> np.ndarray:
        """Converts a tensor to a numpy array."""
        return self.inner.array(tensor)

    def require_equal(self, found: Tensor, expected: Tensor, message: str) -> None:
        """Raises an error with a message unless two numbers are equal."""
        self.inner.require_equal(found, expected, message)

    def gather(self, tensor: Tensor, name: str) -> Tensor:
        """Joins tensors of all ranks along the first dimension."""
        return self.inner.gather(tensor, name)

    def broadcast(self, tensor: Tensor, root: int, name: str) -> Tensor:
        """Returns the tensor of one rank on all ranks."""
        return self.inner.broadcast(tensor, root, name)


def _in_graph() -> bool:
    if keras.config.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def _bytes(tensor: Tensor, compression: Compressor) -> float:
    """Returns how many bytes of a dense tensor are sent."""
    count, size = 1, keras.backend.standardize_dtype(tensor.dtype)
    for side in tensor.shape:
        count *= int(side)
    if size == "bfloat16" or not compression.half:
        return count * (8 if size == "float64" else 2 if size == "float16" else 4)
    return count * 2
