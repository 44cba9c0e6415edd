"""How the losses of a model combine over ranks: as a mean, as a sum, or in no way that one rank would have.

A loss that is a mean over samples is the mean of the ranks' losses, and so is its gradient. A loss that divides by
something else, or compares the samples of a batch with each other, is another one on a part of the batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from batchhvd.errors import SpecError

if TYPE_CHECKING:
    import keras

    from batchhvd.trainer.hvd.binding import Op

#: Losses of Keras that compare the samples of a batch with each other, unless an axis says otherwise.
_OVER_A_BATCH = {"dice", "tversky", "circle"}


def combination(model: keras.Model) -> Op:
    """Returns how gradients are combined: as sums if the losses are sums, so that N ranks have one rank's gradient."""
    from batchhvd.trainer import hvd

    losses = _losses(model.loss)
    sums = [getattr(loss, "reduction", None) == "sum" for loss in losses]
    if not any(sums):
        return hvd.Average
    if not all(sums) or model.losses:
        raise SpecError(
            "some losses of this model are sums over a batch and others are means (penalties of layers count once), so "
            "neither the sum nor the mean of the ranks' gradients is right",
            remedy='compile with losses whose reduction is "sum_over_batch_size"',
        )
    return hvd.Sum


def require_divisible(model: keras.Model, weighted: bool) -> None:
    """Makes sure that several ranks can share a batch, and warns of what will not be as on one rank.

    Args:
        model: compiled.
        weighted: whether samples may have weights.

    Raises:
        SpecError: A loss divides by the sum of the weights of its batch.
    """
    from batchhvd.trainer import hvd

    if hvd.size() == 1:
        return
    losses = _losses(model.loss)
    if weighted and any(getattr(loss, "reduction", None) == "mean_with_sample_weight" for loss in losses):
        raise SpecError(
            "a loss with the reduction mean_with_sample_weight divides by the sum of the weights of a batch, which "
            "differs between the ranks, so the mean of their gradients is not that of the whole batch",
            remedy='compile with a loss whose reduction is "sum_over_batch_size"',
        )
    for sentence in _not_as_one(model, losses):
        warnings.warn(sentence, stacklevel=3)


def _not_as_one(model: keras.Model, losses: list[object]) -> Iterator[str]:
    """Yields what is not as on one rank with a larger batch, though ranks train one model."""
    for name in (_name(loss) for loss in losses if getattr(loss, "axis", None) is None):
        if name.lower() in _OVER_A_BATCH:
            yield (
                f"the loss {name} compares the samples of a batch with each other: each rank compares those of its own "
                "batch, and the gradients are averaged, which is not the loss of one rank over all batches"
            )
    outputs = getattr(model, "outputs", None) or ()  # a model with a call of its own has none
    if any(getattr(loss, "reduction", "") != "sum" for loss in losses) and any(map(_is_masked, outputs)):
        yield (
            "masks reach the loss of this model, which divides by the number of time steps that they leave: each rank "
            "divides by its own number, so ranks with short sequences count for more than on one rank"
        )


def _is_masked(output: object) -> bool:
    return getattr(output, "_keras_mask", None) is not None


def _name(loss: object) -> str:
    return loss if isinstance(loss, str) else str(getattr(loss, "__name__", type(loss).__name__))


def _losses(losses: object) -> list[object]:
    """Returns the losses in a list, dictionary or other structure; without those that are None."""
    import keras

    return [loss for loss in keras.tree.flatten(losses) if loss is not None]
