"""What the two Keras backends must offer for ranks to work together."""

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
    """How values of all ranks become one; the value is Horovod's name of it."""

    AVERAGE = "Average"
    SUM = "Sum"
    MIN = "Min"
    MAX = "Max"
    PRODUCT = "Product"


@frozen
class Compressor:
    """How gradients travel.

    Attributes:
        half: as float16. The average is taken before, in the gradients' own precision, so that sums of many ranks
            do not overflow; what is smaller than 6e-8 becomes zero.
    """

    half: bool = False


class Compression:
    """Horovod's names of the ways that gradients can travel."""

    none = Compressor()
    fp16 = Compressor(half=True)


class Binding(Protocol):
    """Horovod on one Keras backend. Tensors are the backend's own.

    Attributes:
        module: ``horovod.tensorflow`` or ``horovod.torch``.
    """

    module: ModuleType

    def owns(self, value: object) -> bool:
        """Tells whether a value is a tensor of this backend."""
        ...

    def tensor(self, array: np.ndarray) -> Tensor:
        """Turns a numpy array into a tensor on the CPU."""
        ...

    def array(self, tensor: Tensor) -> np.ndarray:
        """Turns a tensor into a numpy array."""
        ...

    def reduce(self, tensors: Sequence[Tensor], name: str, op: Op, compression: Compressor) -> list[Tensor]:
        """Reduces tensors over all ranks, in one go; works in compiled steps too.

        Args:
            tensors: any shapes and types, the same on all ranks; sparse ones allowed for sums and averages.
            name: the same on all ranks, and not in use at the same time for something else.
            op: how.
            compression: how floating-point tensors travel.
        """
        ...

    def gather(self, tensor: Tensor, name: str) -> Tensor:
        """Joins tensors of all ranks along the first dimension, which may differ."""
        ...

    def broadcast(self, tensor: Tensor, root: int, name: str) -> Tensor:
        """Returns the tensor of one rank on all ranks."""
        ...
