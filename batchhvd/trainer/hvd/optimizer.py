"""The optimizer that averages gradients over all ranks, for Keras 3.

The distributed optimizer is the user's own object with one more layer on top of its class; see `reduction`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import keras

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.binding import Compression, Compressor, Op
from batchhvd.trainer.hvd.optimizer_search import optimizers_of
from batchhvd.trainer.hvd.reduction import Distributed, Reduction, scale_together, settle_name
from batchhvd.trainer.hvd.world import world

_Optimizer = TypeVar("_Optimizer", bound="keras.optimizers.Optimizer")


def DistributedOptimizer(  # noqa: N802  # Horovod's own name
    optimizer: _Optimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Op = Op.AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: object = None,
    process_set: object = None,
    scale_local_gradients: bool = True,
) -> _Optimizer:
    """Makes an optimizer average its gradients over all ranks, and returns the same object.

    Its state is kept, so an optimizer that was loaded with its model continues where it was. A model that is saved
    with it names the plain optimizer, and can be loaded without this package.

    Args:
        optimizer: any optimizer of Keras 3, built or not.
        name: a name for its reductions, the same on all ranks; None numbers them.
        compression: `Compression.none` or `Compression.fp16`.
        sparse_as_dense: send sparse gradients as dense ones.
        op: `Average` or `Sum`.
        backward_passes_per_step: how many steps precede each reduction; the same as Keras's
            ``gradient_accumulation_steps``, which may be set on the optimizer instead.
        average_aggregated_gradients: True divides by these steps, as Keras does; False adds, as Horovod does.
        device_dense, device_sparse, num_groups, groups, scale_local_gradients: Horovod's; without effect here, since
            all gradients are sent in one group.
        gradient_predivide_factor, process_set: Horovod's; only the defaults are supported.

    Raises:
        SpecError: It is not an optimizer of Keras 3, or an argument is not supported.
    """
    _check(optimizer, gradient_predivide_factor, process_set, op)
    if broken_wrapper(optimizer):
        warnings.warn(_WARNING, stacklevel=2)
    scale_together()
    inner = optimizer.inner_optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else optimizer
    if not isinstance(inner, Distributed):
        passes = _accumulate(inner, backward_passes_per_step, average_aggregated_gradients)
        _layer(inner, name, Reduction(op, compression, sparse_as_dense, passes))
    return optimizer


_WARNING = (
    "This optimizer was wrapped by Horovod's own DistributedOptimizer, which does nothing on Keras 3: every rank "
    "trains alone. Wrap the plain optimizer with batchhvd.trainer.hvd.DistributedOptimizer instead."
)


def broken_wrapper(optimizer: object) -> bool:
    """Returns whether a Keras 3 optimizer has Horovod's own wrapper, which exchanges nothing there."""
    return not is_distributed(optimizer) and any(
        (getattr(member, "__module__", None) or "").startswith("horovod.")
        for kind in type(optimizer).__mro__
        for member in vars(kind).values()
        if callable(member)
    )


def _check(optimizer: object, predivide: float, process_set: object, op: Op) -> None:
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise SpecError(
            f"{type(optimizer).__module__}.{type(optimizer).__name__} is not an optimizer of Keras 3",
            remedy="pass one of keras.optimizers, for example keras.optimizers.SGD(0.01)",
        )
    if predivide != 1.0 or process_set is not None:
        raise SpecError(
            "gradient_predivide_factor and process_set are not supported", remedy="leave them out: all ranks, averaged"
        )
    if op not in (Op.AVERAGE, Op.SUM):
        raise SpecError(f"gradients cannot be reduced by {op}", remedy="use hvd.Average or hvd.Sum")


def _accumulate(optimizer: keras.optimizers.Optimizer, passes: int, average: bool) -> int:
    """Sets Keras's own accumulation, and returns the factor for its average."""
    if passes == 1:
        return 1
    if optimizer.built or optimizer.gradient_accumulation_steps not in (None, passes):
        raise SpecError(
            f"backward_passes_per_step={passes} comes too late or contradicts gradient_accumulation_steps="
            f"{optimizer.gradient_accumulation_steps}",
            remedy="set gradient_accumulation_steps when you create the optimizer",
        )
    optimizer.gradient_accumulation_steps = passes
    return 1 if average else passes


def _layer(optimizer: keras.optimizers.Optimizer, name: str | None, reduction: Reduction) -> None:
    """Puts a layer on top of the class of an object, and keeps the names under which Keras saves it."""
    base = type(optimizer)
    label = {"reduction_name": f"batchhvd.{name}"} if name else {}
    place = {"__module__": _module(base), "__doc__": base.__doc__}
    made = type(base.__name__, (Distributed, base), {**place, **label, "reduction": reduction})
    _register(made, base)
    # Not by plain assignment: Keras's and TensorFlow's own __setattr__ would track it as a member.
    object.__setattr__(optimizer, "__class__", made)
    if optimizer.built:
        settle_name(optimizer)


def _module(base: type) -> str:
    """Returns the module that a saved model names for an optimizer: Keras's public one, which all backends have."""
    public = getattr(keras.optimizers, base.__name__, None)
    return "keras.optimizers" if public in base.__mro__ else base.__module__


def _register(made: type, base: type) -> None:
    """Registers a class under the name that the user has registered for its base class."""
    package, _, name = keras.saving.get_registered_name(base).rpartition(">")
    if package:
        keras.saving.register_keras_serializable(package, name)(made)
        keras.saving.get_custom_objects()[f"{package}>{name}"] = base


def prepare(model: keras.Model) -> None:
    """Prepares the step of a compiled model for several ranks; call it before the step is first compiled.

    On TensorFlow the step is not compiled by XLA, which has no operation of Horovod. A warning names the optimizers
    that do not synchronize.

    Raises:
        SpecError: A layer is to normalize over the batches of all ranks.
    """
    found = optimizers_of(model)
    if world().size > 1:
        _refuse_synchronized(model)
    if world().size > 1 and keras.config.backend() == "tensorflow" and model.jit_compile:
        model.jit_compile = False
        if getattr(model, "_compile_config", None) and model._compile_config.config.get("jit_compile") is True:
            warnings.warn("jit_compile=True is turned off: XLA has no operation of Horovod", stacklevel=2)
    if any(map(broken_wrapper, found.values())):
        warnings.warn(_WARNING, stacklevel=2)
    elif world().size > 1 and (alone := undistributed(found)):
        warnings.warn(
            f"{world().size} ranks train this model with an optimizer that is not distributed, so each trains alone. "
            f"Wrap it: optimizer = hvd.DistributedOptimizer(optimizer). Not wrapped: model.{', model.'.join(alone)}",
            stacklevel=2,
        )


def _refuse_synchronized(model: keras.Model) -> None:
    names = [layer.name for layer in model._flatten_layers() if getattr(layer, "synchronized", False)]
    if names:
        raise SpecError(
            f"synchronized=True synchronizes replicas of tf.distribute, not ranks: {', '.join(names)}",
            remedy="leave it out: each rank normalizes with its own batch, and the moving statistics are averaged; or "
            "use GroupNormalization, which needs no other samples",
        )


def undistributed(found: Mapping[str, keras.optimizers.Optimizer]) -> list[str]:
    """Returns the paths of the optimizers of a model that do not synchronize.

    A model with distributed optimizers of its own does not use the one that ``compile`` gave it by default.
    """
    alone = [path for path, optimizer in found.items() if not is_distributed(optimizer)]
    return [] if alone == ["optimizer"] and len(found) > 1 else alone


def is_distributed(optimizer: object) -> bool:
    """Returns whether an optimizer reduces its gradients over all ranks."""
    return isinstance(getattr(optimizer, "inner_optimizer", optimizer), Distributed)


def load_model(
    filepath: str | Path,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: Mapping[str, object] | None = None,
    compression: Compressor = Compression.none,
) -> keras.Model:
    """Loads a Keras model and makes its optimizer distributed, including its state.

    Args:
        filepath: a file that ``model.save`` wrote.
        custom_optimizers: classes of optimizers that are not Keras's own.
        custom_objects: other classes and functions by name.
        compression: how gradients are sent.
    """
    known = {**{kind.__name__: kind for kind in custom_optimizers or ()}, **(custom_objects or {})}
    model = keras.models.load_model(filepath, custom_objects=known or None)
    if model.optimizer is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
