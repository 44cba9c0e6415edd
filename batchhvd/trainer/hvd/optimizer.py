"""The optimizer that averages gradients over all ranks, for Keras 3.

Keras hands all gradients to one documented method, `keras.optimizers.Optimizer.apply`. The distributed optimizer is
the user's own object whose class got one more layer on top: its `apply` reduces first, and everything that Keras
does afterwards (unscaling, clipping, weight decay, the update itself) sees gradients that are alike on all ranks.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from attrs import frozen

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.binding import Compression, Compressor, Op
from batchhvd.trainer.hvd.world import world

# Reductions are found by name on all ranks. The names count the distributed optimizers of this process, because
# Keras's own names differ between ranks as soon as one of them makes an extra object.
_serials = itertools.count()


@frozen
class Reduction:
    """How gradients of all ranks become one.

    Attributes:
        op: `Average` or `Sum`.
        compression: how they travel.
        sparse_as_dense: sparse gradients are sent as dense ones.
        passes: local steps between two reductions that are added up and not averaged, as in Horovod; 1 elsewhere.
    """

    op: Op = Op.AVERAGE
    compression: Compressor = Compression.none
    sparse_as_dense: bool = False
    passes: int = 1

    def reduce(self, gradients: Sequence[Any], name: str) -> list[Any]:
        """Returns the gradients of all ranks as one; with one rank, or without gradients, what was given."""
        gradients = [_dense(gradient) if self.sparse_as_dense else gradient for gradient in gradients]
        binding = world().binding
        if binding is not None and gradients:
            gradients = binding.reduce(gradients, name, self.op, self.compression)
        if self.passes > 1:
            gradients = [_dense(gradient) * self.passes for gradient in gradients]
        return gradients


class Distributed:
    """The layer on top of an optimizer's class: reduces, then lets Keras apply."""

    reduction = Reduction()
    reduction_name = ""

    def build(self, variables: Any) -> None:
        """Creates the optimizer's variables and settles the name of its reductions."""
        super().build(variables)  # type: ignore[misc]  # the class below in the order of resolution is Keras's
        _name(self)

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Updates the variables with the gradients of all ranks.

        Args:
            grads: this rank's gradients; None for variables without one, which must be the same on all ranks.
            trainable_variables: the variables that they belong to; None once the optimizer is built.
        """
        keras_optimizer: Any = super()
        optimizer: Any = self
        grads = list(grads)
        if not optimizer.built and trainable_variables is not None:
            optimizer.build(list(trainable_variables))
        if optimizer.gradient_accumulation_steps:
            grads = _reduce_at_boundary(optimizer, grads, trainable_variables)
        else:
            grads = _reduce_present(optimizer, grads)
        keras_optimizer.apply(grads, trainable_variables)


class DistributedLossScale:
    """The layer on top of Keras's loss scaling: a step is skipped on all ranks or on none."""

    reduction_name = ""

    def build(self, variables: Any) -> None:
        """Creates the optimizer's variables and settles the name of its agreement."""
        super().build(variables)  # type: ignore[misc]  # the class below in the order of resolution is Keras's
        _name(self)

    def check_finite(self, grads: Sequence[Any]) -> Any:
        """Tells whether the gradients of all ranks are finite."""
        keras_optimizer: Any = super()
        finite = keras.ops.cast(keras_optimizer.check_finite(grads), "float32")
        binding = world().binding
        if binding is not None:
            finite = binding.reduce([finite], f"{self.reduction_name}.finite", Op.MIN, Compression.none)[0]
        return keras.ops.greater(finite, 0.5)


def _name(optimizer: Any) -> None:
    if not optimizer.reduction_name:
        optimizer.reduction_name = f"batchhvd.optimizer{next(_serials)}"


def _dense(gradient: Any) -> Any:
    return keras.ops.convert_to_tensor(gradient, sparse=False)


def _reduce_present(optimizer: Any, grads: Sequence[Any]) -> list[Any]:
    """Reduces those gradients that are there."""
    places = [place for place, gradient in enumerate(grads) if gradient is not None]
    reduced: list[Any] = list(grads)
    found = optimizer.reduction.reduce([grads[place] for place in places], optimizer.reduction_name)
    for place, gradient in zip(places, found, strict=True):
        reduced[place] = gradient
    return reduced


def _reduce_at_boundary(optimizer: Any, grads: Sequence[Any], variables: Any) -> list[Any]:
    """Lets Keras collect gradients on each rank, and reduces once they are complete.

    At the last step of a round the reduced sum takes the place of what Keras collected, and zeros that of the last
    gradients: Keras then adds nothing, divides by the number of steps and clips what is alike on all ranks.
    """
    variables = optimizer._trainable_variables if variables is None else list(variables)
    places = [place for place, gradient in enumerate(grads) if gradient is not None]
    local = [_dense(grads[place]) for place in places]
    sums = [optimizer._accumulated_gradients[optimizer._get_variable_index(variables[place])] for place in places]

    def complete() -> list[Any]:
        totals = [keras.ops.add(total, gradient) for total, gradient in zip(sums, local, strict=True)]
        for total, found in zip(sums, optimizer.reduction.reduce(totals, optimizer.reduction_name), strict=True):
            total.assign(found)
        return [keras.ops.zeros_like(gradient) for gradient in local]

    steps = optimizer.gradient_accumulation_steps
    last = keras.ops.equal((optimizer._iterations + 1) % steps, 0)
    rest = keras.ops.cond(last, complete, lambda: list(local))
    reduced: list[Any] = list(grads)
    for place, gradient in zip(places, rest, strict=True):
        reduced[place] = gradient
    return reduced


def DistributedOptimizer(
    optimizer: Any,
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
    groups: Any = None,
    process_set: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer average its gradients over all ranks, and returns it: the same object.

    Its state stays as it is, so an optimizer that was loaded with its model goes on where it was. A model that is
    saved with it names the plain optimizer, and opens where this package is not installed.

    Args:
        optimizer: any optimizer of Keras 3, built or not.
        name: a name of its reductions, the same on all ranks; None counts.
        compression: `Compression.none` or `Compression.fp16`.
        sparse_as_dense: send sparse gradients as dense ones.
        op: `Average` or `Sum`.
        backward_passes_per_step: reduce every so many steps only; the same as Keras's
            ``gradient_accumulation_steps``, which may be set on the optimizer instead.
        average_aggregated_gradients: True divides by these steps, as Keras does; False adds, as Horovod does.
        device_dense, device_sparse, num_groups, groups, scale_local_gradients: Horovod's; without effect here, since
            all gradients travel in one group.
        gradient_predivide_factor, process_set: Horovod's; only the defaults are supported.

    Raises:
        SpecError: not an optimizer of Keras 3, or a setting that is not supported.
    """
    _check(optimizer, gradient_predivide_factor, process_set, op)
    if broken_wrapper(optimizer):
        warnings.warn(_WARNING, stacklevel=2)
    if isinstance(optimizer, (Distributed, DistributedLossScale)):
        return optimizer
    inner = optimizer.inner_optimizer if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) else optimizer
    passes = _accumulate(inner, backward_passes_per_step, average_aggregated_gradients)
    if not isinstance(inner, Distributed):
        _layer(inner, Distributed, name, {"reduction": Reduction(op, compression, sparse_as_dense, passes)})
    if inner is not optimizer:
        _layer(optimizer, DistributedLossScale, name and f"{name}.scale", {})
    return optimizer


_WARNING = (
    "This optimizer was wrapped by Horovod's own DistributedOptimizer, which does nothing on Keras 3: every rank "
    "trains alone. Wrap the plain optimizer with batchhvd.trainer.hvd.DistributedOptimizer instead."
)


def broken_wrapper(optimizer: Any) -> bool:
    """Tells whether Horovod's own wrapper sits on a Keras 3 optimizer, where it exchanges nothing."""
    ours = isinstance(optimizer, (Distributed, DistributedLossScale))
    return not ours and any(
        (getattr(member, "__module__", None) or "").startswith("horovod.")
        for kind in type(optimizer).__mro__
        for member in vars(kind).values()
        if callable(member)
    )


def _check(optimizer: Any, predivide: float, process_set: Any, op: Op) -> None:
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


def _accumulate(optimizer: Any, passes: int, average: bool) -> int:
    """Sets Keras's own accumulation, and returns what its average must be multiplied by."""
    if passes == 1:
        return 1
    if optimizer.built or optimizer.gradient_accumulation_steps not in (None, passes):
        raise SpecError(
            f"backward_passes_per_step={passes} comes too late or contradicts gradient_accumulation_steps="
            f"{optimizer.gradient_accumulation_steps}",
            remedy="set gradient_accumulation_steps when the optimizer is made",
        )
    optimizer.gradient_accumulation_steps = passes
    return 1 if average else passes


def _layer(optimizer: Any, layer: type, name: str | None, settings: Mapping[str, Any]) -> None:
    """Puts a layer on top of an object's class, and keeps the names by which Keras saves it."""
    base = type(optimizer)
    label = {"reduction_name": f"batchhvd.{name}"} if name else {}
    place = {"__module__": _module(base), "__doc__": base.__doc__}
    made = type(base.__name__, (layer, base), {**place, **label, **settings})
    _register(made, base)
    # Not by plain assignment: Keras's and TensorFlow's own __setattr__ would track it as a member.
    object.__setattr__(optimizer, "__class__", made)
    if optimizer.built:
        _name(optimizer)


def _module(base: type) -> str:
    """Returns where a saved model shall look for an optimizer: Keras's public module, which all backends have."""
    public = getattr(keras.optimizers, base.__name__, None)
    return "keras.optimizers" if public in base.__mro__ else base.__module__


def _register(made: type, base: type) -> None:
    """Lets a class be saved under the name that the user has registered for the one below."""
    package, _, name = keras.saving.get_registered_name(base).rpartition(">")
    if package:
        keras.saving.register_keras_serializable(package, name)(made)
        keras.saving.get_custom_objects()[f"{package}>{name}"] = base


def prepare(model: Any) -> None:
    """Makes a compiled model's step fit for several ranks; to be called before its step is first compiled.

    Keras puts its own loss scaling on top of a distributed optimizer in mixed float16: it gets its layer too. On
    TensorFlow the step is not compiled by XLA, which has no operation of Horovod. What does not synchronise is
    warned of.
    """
    optimizer = model.optimizer
    scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if scaled and isinstance(optimizer.inner_optimizer, Distributed):
        DistributedOptimizer(optimizer)
    if world().size > 1 and keras.config.backend() == "tensorflow" and model.jit_compile:
        model.jit_compile = False
    if broken_wrapper(optimizer):
        warnings.warn(_WARNING, stacklevel=2)
    elif world().size > 1 and not is_distributed(optimizer):
        warnings.warn(
            f"{world().size} ranks train this model with an optimizer that is not distributed, so each trains alone. "
            "Wrap it: optimizer = hvd.DistributedOptimizer(optimizer)",
            stacklevel=2,
        )


def is_distributed(optimizer: Any) -> bool:
    """Tells whether an optimizer reduces its gradients over all ranks."""
    return isinstance(getattr(optimizer, "inner_optimizer", optimizer), Distributed)


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Compressor = Compression.none,
) -> Any:
    """Loads a Keras model and makes its optimizer distributed, state included.

    Args:
        filepath: a file that ``model.save`` wrote.
        custom_optimizers: classes of optimizers that are not Keras's own.
        custom_objects: other classes and functions by name.
        compression: how gradients travel.
    """
    known = {**{kind.__name__: kind for kind in custom_optimizers or ()}, **(custom_objects or {})}
    model = keras.models.load_model(filepath, custom_objects=known or None)
    if model.optimizer is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
