"""The learning rate: how it grows with the number of ranks, and how it changes over the steps of a training.

N ranks with batch b make the step that one rank with batch N·b would make. How much larger that step may be depends on
the problem, so it is an explicit choice. Everything is plain arithmetic, except for the last functions, which make
schedules for Keras's optimizers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.warmup import Warmup

if TYPE_CHECKING:
    import keras

    from batchhvd.trainer.hvd.binding import Tensor

ScaleRate = Literal["linear", "sqrt"]
__all__ = [
    "LINEAR",
    "NONE",
    "SQRT",
    "TUTORIAL_DECAY",
    "TUTORIAL_RATE",
    "ScaleRate",
    "Scaling",
    "Warmup",
    "one_cycle",
    "one_cycle_schedule",
    "rate_text",
    "scaled_rates",
    "scaling",
    "tutorial_epochs",
    "tutorial_schedule",
]

TUTORIAL_RATE = 1e-4  # of one rank
TUTORIAL_DECAY = 1e-6


# --- with the number of ranks ---------------------------------------------------------------------------------------


@frozen
class Scaling:
    """The factor of the learning rate on N ranks: ``rate(N) = base · N ** power``.

    Attributes:
        name: "none", "linear" or "sqrt".
        power: 0, 1 or 1/2.

    Source: linear, with warm-up: Goyal et al., "Accurate, Large Minibatch SGD" (arXiv 1706.02677), and the tutorial's
    script; square root: Krizhevsky, "One weird trick" (arXiv 1404.5997), section 5.
    """

    name: str
    power: float

    def rate(self, base: float, ranks: int) -> float:
        """Returns the learning rate on so many ranks.

        Args:
            base: the rate of one rank.
            ranks: number of ranks.
        """
        return base * math.pow(ranks, self.power)


NONE = Scaling("none", 0.0)
LINEAR = Scaling("linear", 1.0)
SQRT = Scaling("sqrt", 0.5)


def scaling(name: str) -> Scaling:
    """Returns the policy of that name.

    Raises:
        SpecError: There is no such policy.
    """
    for policy in (NONE, LINEAR, SQRT):
        if policy.name == name:
            return policy
    raise SpecError(f"no scaling of the learning rate is called {name!r}", remedy="use none, linear or sqrt")


@contextmanager
def scaled_rates(optimizers: Sequence[keras.optimizers.Optimizer], factor: float) -> Iterator[None]:
    """Multiplies the learning rates of optimizers by a factor, and divides them by it at the end.

    A rate that changes in between, such as by `ReduceLROnPlateau`, keeps its change. Schedules and functions are
    multiplied as a whole. What is saved in between, such as a checkpoint, holds the multiplied rate.
    """
    rated = [one for optimizer in optimizers for one in with_rates(optimizer)] if factor != 1.0 else []
    unscale = [_multiply(optimizer, factor) for optimizer in rated]
    try:
        yield
    finally:
        for back in unscale:
            back()


def with_rates(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Returns the optimizers inside one that have a learning rate: itself, or those of a ``MultiOptimizer`` so far."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    parts = getattr(inner, "optimizers", None)
    return [inner] if parts is None else [one for part in parts for one in with_rates(part)]


def _multiply(optimizer: keras.optimizers.Optimizer, factor: float) -> Callable[[], None]:
    """Multiplies one rate, and returns what undoes it."""
    import keras

    given = optimizer._learning_rate  # noqa: SLF001  # the public property is a schedule's present value
    if isinstance(given, keras.Variable):
        optimizer.learning_rate = given * factor
        return lambda: setattr(optimizer, "learning_rate", optimizer.learning_rate / factor)
    is_schedule = isinstance(given, keras.optimizers.schedules.LearningRateSchedule)
    optimizer.learning_rate = _product(given, factor) if is_schedule else lambda: given() * factor
    return lambda: setattr(optimizer, "learning_rate", given)


def _product(
    given: keras.optimizers.schedules.LearningRateSchedule, factor: float
) -> keras.optimizers.schedules.LearningRateSchedule:
    import keras

    class Multiplied(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]  # Keras has no types
        def __call__(self, step: Tensor) -> Tensor:
            return given(step) * factor

        def get_config(self) -> dict[str, object]:
            return {"schedule": given.get_config(), "factor": factor}

    return Multiplied()


def rate_text(optimizers: Sequence[keras.optimizers.Optimizer], ranks: int, policy: Scaling, *, advise: bool) -> str:
    """Returns a line that says how fast several ranks learn, and what decided it.

    Args:
        optimizers: with their rates as they train.
        ranks: number of ranks.
        policy: by which the rates were multiplied.
        advise: whether to name the choices if they were not multiplied.
    """
    plain = [one for optimizer in optimizers for one in with_rates(optimizer)]
    rates = ", ".join(f"{float(optimizer.learning_rate):.6g}" for optimizer in plain) or "of each of its optimizers"
    if any(callable(optimizer._learning_rate) for optimizer in plain):  # noqa: SLF001  # a schedule
        rates += " in the first step"
    if policy is not NONE:
        why = f'{policy.rate(1.0, ranks):.4g} times that of one rank (scale_rate="{policy.name}")'
    else:
        why = "as compiled" + ('; scale_rate="linear" or "sqrt" scales that of one rank' if advise else "")
    return f"Learning rate {rates} on {ranks} ranks: {why}"


def tutorial_epochs(ranks: int, total: int = 100) -> int:
    """Returns how many epochs the tutorial's script trains: ``⌈total / ranks⌉``."""
    return math.ceil(total / ranks)


# --- over the steps of a training -----------------------------------------------------------------------------------


def one_cycle(step: float, *, steps: int, peak: float, warmup: float = 0.25, start: float = 0.05) -> float:
    """Returns the rate at ``step``: it rises linearly from ``start × peak`` to ``peak`` and then falls to zero.

    Args:
        step: counted from 0; after the last step the rate stays zero.
        steps: number of steps of the whole training.
        peak: the highest rate.
        warmup: the fraction of the steps in which the rate rises, which is the warm-up that many ranks need.
        start: the first rate as a fraction of the peak.
    """
    done = min(step / steps, 1.0)
    if done < warmup:
        return peak * (start + (1 - start) * done / warmup)
    return peak * (1 - done) / (1 - warmup)


def one_cycle_schedule(
    *, steps: int, peak: float, warmup: float = 0.25, start: float = 0.05
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns :func:`one_cycle` as a schedule that Keras computes inside the training step, on any backend."""
    import keras

    class OneCycle(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]  # Keras has no types
        def __call__(self, step: Tensor) -> Tensor:
            done = keras.ops.minimum(keras.ops.cast(step, "float32") / steps, 1.0)
            down = (1 - done) / (1 - warmup)
            if not warmup:
                return peak * down
            up = start + (1 - start) * done / warmup
            return peak * keras.ops.minimum(up, down)

        def get_config(self) -> dict[str, float]:
            return {"steps": steps, "peak": peak, "warmup": warmup, "start": start}

    return OneCycle()


def tutorial_schedule(rate: float) -> keras.optimizers.schedules.LearningRateSchedule:
    """Returns ``decay=1e-6`` of the printed script as a schedule: ``rate / (1 + decay × step)``.

    Source: the ``decay`` argument of Keras 2's optimizers, which Keras 3 no longer has.
    """
    import keras

    return keras.optimizers.schedules.InverseTimeDecay(rate, decay_steps=1, decay_rate=TUTORIAL_DECAY)
