"""TensorFlow's gradient tape, averaging over all ranks, for training loops written as Horovod's examples are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.binding import Compression, Compressor, Op
from batchhvd.trainer.hvd.reduction import Reduction

if TYPE_CHECKING:
    import tensorflow as tf


def DistributedGradientTape(  # noqa: N802  # Horovod's own name
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = False,
    op: Op = Op.AVERAGE,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: object = None,
    process_set: object = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Makes a tape combine its gradients over all ranks, and returns the same object.

    Args:
        gradtape: a tape that has recorded; variables of Keras 3 and of TensorFlow may be asked for.
        compression: `Compression.none` or `Compression.fp16`.
        sparse_as_dense: send sparse gradients as dense ones.
        op: `Average` or `Sum`.
        device_dense, device_sparse, num_groups, groups, scale_local_gradients: Horovod's; without effect here.
        gradient_predivide_factor, process_set: Horovod's; only the defaults are supported.

    Raises:
        SpecError: The Keras backend is not TensorFlow, or an argument is not supported.
    """
    if keras.config.backend() != "tensorflow":
        raise SpecError(
            "DistributedGradientTape is for the TensorFlow backend of Keras",
            remedy="wrap the optimizer with hvd.DistributedOptimizer and call optimizer.apply(gradients, variables)",
        )
    if gradient_predivide_factor != 1.0 or process_set is not None:
        raise SpecError(
            "gradient_predivide_factor and process_set are not supported", remedy="leave them out: all ranks, averaged"
        )
    base = type(gradtape)
    if not issubclass(base, _Distributed):
        made = type(base.__name__, (_Distributed, base), {"reduction": Reduction(op, compression, sparse_as_dense)})
        object.__setattr__(gradtape, "__class__", made)
    return gradtape


class _Distributed:
    """The layer on top of a tape's class."""

    reduction = Reduction()

    def gradient(self, target: object, sources: object, *arguments: object, **options: object) -> object:
        """Returns the gradients of all ranks, in the structure of ``sources``."""
        import tensorflow as tf

        tape: tf.GradientTape = super()
        structure = tape.gradient(target, sources, *arguments, **options)
        found = tf.nest.flatten(structure)
        places = [place for place, gradient in enumerate(found) if gradient is not None]
        reduced = self.reduction.reduce([found[place] for place in places], "batchhvd.tape")
        for place, gradient in zip(places, reduced, strict=True):
            found[place] = gradient
        return tf.nest.pack_sequence_as(structure, found)
