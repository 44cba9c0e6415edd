"""Learning rates over the steps of a training, as plain arithmetic and as schedules for Keras's optimizers."""

from __future__ import annotations

from typing import Any

TUTORIAL_RATE = 1e-4  # of one rank
TUTORIAL_DECAY = 1e-6


def one_cycle(step: float, *, steps: int, peak: float, warmup: float = 0.25, start: float = 0.05) -> float:
    """Returns the rate at ``step``: up in a straight line from ``start × peak`` to ``peak``, then down to nothing.

    Args:
        step: from 0; after the last one the rate stays at its end.
        steps: steps of the whole training.
        peak: the highest rate.
        warmup: the part of the steps that goes up, which is the warm-up that many ranks need.
        start: the first rate as a part of the peak.
    """
    done = min(step / steps, 1.0)
    if done < warmup:
        return peak * (start + (1 - start) * done / warmup)
    return peak * (1 - done) / (1 - warmup)


def one_cycle_schedule(*, steps: int, peak: float, warmup: float = 0.25, start: float = 0.05) -> Any:
    """Makes :func:`one_cycle` a schedule that Keras computes inside the training step, on any backend."""
    import keras

    class OneCycle(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]  # Keras has no types
        def __call__(self, step: Any) -> Any:
            done = keras.ops.minimum(keras.ops.cast(step, "float32") / steps, 1.0)
            up = start + (1 - start) * done / warmup
            down = (1 - done) / (1 - warmup)
            return peak * keras.ops.minimum(up, down)

        def get_config(self) -> dict[str, float]:
            return {"steps": steps, "peak": peak, "warmup": warmup, "start": start}

    return OneCycle()


def tutorial_schedule(rate: float) -> Any:
    """Makes the printed script's ``decay=1e-6`` a schedule: ``rate / (1 + decay × step)``.

    Source: the ``decay`` argument of Keras 2's optimizers, which Keras 3 no longer has.
    """
    import keras

    return keras.optimizers.schedules.InverseTimeDecay(rate, decay_steps=1, decay_rate=TUTORIAL_DECAY)
