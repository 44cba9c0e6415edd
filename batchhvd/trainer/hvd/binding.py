"""What a Keras backend must provide so that ranks can work together."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from attrs import frozen

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf
    import torch

    #: A tensor of the Keras backend in use; sparse gradients of TensorFlow are ``tf.IndexedSlices``.
    Tensor: TypeAlias = tf.Tensor | tf.IndexedSlices | torch.Tensor


class Op(Enum):
    """How the values of all ranks are combined; each value is Horovod's name of the operation."""

    AVERAGE = "Average"
    SUM = "Sum"
    MIN = "Min"
    MAX = "Max"
    PRODUCT = "Product"


@frozen
class Compressor:
    """How gradients are sent.

    Attributes:
        half: as float16. They are divided by the number of ranks before, in their own precision, so that sums of many
            ranks do not overflow; values smaller than 6e-8 become zero.
    """

    half: bool = False


class Compression:
    """Horovod's names of the ways in which gradients can be sent."""

    none = Compressor()
    fp16 = Compressor(half=True)


class Binding(Protocol):
    """Horovod on one Keras backend. Tensors are the backend's own.

    Attributes:
        module: ``horovod.tensorflow`` or ``horovod.torch``.
    """

    module: ModuleType

    def owns(self, value: object) -> bool:
        """Returns whether a value is a tensor of this backend."""
        ...

    def tensor(self, array: np.ndarray) -> Tensor:
        """Converts a numpy array to a tensor on the CPU."""
        ...

    def array(self, tensor: Tensor) -> np.ndarray:
        """Converts a tensor to a numpy array."""
        ...

    def reduce(self, tensors: Sequence[Tensor], name: str, op: Op, compression: Compressor) -> list[Tensor]:
        """Reduces several tensors over all ranks in one operation; works in compiled steps too.

        Args:
            tensors: any shapes and types, the same on all ranks; sparse ones allowed for sums and averages.
            name: the same on all ranks, and not used for another operation at the same time.
            op: how the values are combined.
            compression: how floating-point tensors are sent.
        """
        ...

    def require_equal(self, found: Tensor, expected: Tensor, message: str) -> None:
        """Raises an error with a message unless two numbers are equal; on a GPU, which must not wait, never."""
        ...

    def gather(self, tensor: Tensor, name: str) -> Tensor:
        """Joins tensors of all ranks along the first dimension, which may differ."""
        ...

    def broadcast(self, tensor: Tensor, root: int, name: str) -> Tensor:
        """Returns the tensor of one rank on all ranks."""
        ...
