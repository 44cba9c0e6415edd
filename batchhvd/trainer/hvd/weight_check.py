"""The proof that ranks train one model: after the first step and each epoch their weights must be equal.

One allreduce of two numbers compares digests. Only if these differ are the weights themselves compared, to name the
variables; differences that rounding explains, between processors of different kinds, are allowed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import keras
import numpy as np

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.binding import Op
from batchhvd.trainer.hvd.collective import allgather_object, allreduce, grouped_allreduce
from batchhvd.trainer.hvd.optimizer import is_distributed
from batchhvd.trainer.hvd.optimizer_search import optimizers_of
from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.hvd.world import world

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST = 8.0  # roundings by which weights may differ after the first step
LATER = 1000.0  # and after an epoch
NAMED = 5  # variables in the message


class WeightCheck(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Compares the weights of all ranks after each epoch; the broadcast callback does so after the first step."""

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Compares after the epoch."""
        check_weights(self.model, f"epoch {epoch + 1}", LATER)


def check_weights(model: keras.Model, when: str, roundings: float = FIRST) -> None:
    """Makes sure that all ranks have the same trainable weights and the same number of steps.

    Args:
        model: built, the same on all ranks.
        when: what has just ended, for the message.
        roundings: by how many times the precision of the largest weight of a variable may its values differ.

    Raises:
        SpecError: They differ; the message names variables and optimizers that are not distributed.
    """
    if world().size == 1:
        return
    steps = [optimizer.iterations for optimizer in optimizers_of(model).values()]
    number = _digest([*model.trainable_variables, *steps])
    extremes: np.ndarray = allreduce(np.array([number, -number]), "weight_check", op=Op.MAX)
    if extremes[0] != -extremes[1]:
        _explain(model, when, roundings)


def _digest(variables: Sequence[keras.Variable]) -> int:
    number = 0
    for array in _arrays(variables):
        number = zlib.crc32(np.ascontiguousarray(array).view(np.uint8), number)
    return number


def _arrays(variables: Sequence[keras.Variable]) -> Iterator[np.ndarray]:
    """Yields the values; PyTorch's are joined first, because each transfer from a GPU takes time."""
    if keras.config.backend() == "torch":
        import torch

        groups: dict[torch.dtype, list[torch.Tensor]] = {}
        for tensor in (getattr(variable, "value", variable) for variable in variables):
            groups.setdefault(tensor.dtype, []).append(tensor.detach().reshape(-1))
        yield from (as_array(torch.cat(group)) for group in groups.values())
        return
    yield from (as_array(variable).reshape(-1) for variable in variables)


def _explain(model: keras.Model, when: str, roundings: float) -> None:
    """Raises if the difference is more than rounding."""
    steps = {path: int(as_array(optimizer.iterations)) for path, optimizer in optimizers_of(model).items()}
    everyone = allgather_object(steps, "weight_check.steps")
    if any(theirs != everyone[0] for theirs in everyone):
        counts = "; ".join(f"rank {rank}: {theirs}" for rank, theirs in enumerate(everyone))
        raise SpecError(
            f"after {when} the optimizers of the ranks have made different numbers of steps ({counts})",
            remedy="let all ranks apply the same number of updates, and begin with rank 0's state on all",
        )
    wrong = _different(model.trainable_variables, roundings)
    if wrong:
        raise SpecError(
            f"after {when} the weights of the ranks differ, so they do not train one model: {', '.join(wrong[:NAMED])}"
            + (f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""),
            remedy=_remedy(model),
        )


def _different(variables: Sequence[keras.Variable], roundings: float) -> list[str]:
    arrays: list[np.ndarray] = [as_array(variable).astype("float64") for variable in variables]
    low, high = (grouped_allreduce(arrays, "weight_check.values", op=op) for op in (Op.MIN, Op.MAX))
    found = []
    for variable, least, most in zip(variables, low, high, strict=True):
        size = float(np.max(np.maximum(abs(least), abs(most)), initial=0.0))
        spread = float(np.max(most - least, initial=0.0))
        if not spread <= size * min(roundings * _precision(variable), 0.05):  # also if it is not a number
            found.append(f"{variable.path} by {spread:.3g}")
    return found


def _precision(variable: keras.Variable) -> float:
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}.get(variable.dtype, 2.0**-23)


def _remedy(model: keras.Model) -> str:
    plain = [path for path, optimizer in optimizers_of(model).items() if not is_distributed(optimizer)]
    if plain:
        return f"wrap with hvd.DistributedOptimizer: {', '.join(f'model.{path}' for path in plain)}"
    return (
        "wrap every optimizer that updates them with hvd.DistributedOptimizer (keep it in an attribute of the model, "
        "so that fit finds it), and begin with rank 0's weights on all ranks"
    )
