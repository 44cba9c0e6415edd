"""What all ranks must have in common, compared before the first step; and ranks that stop together.

Ranks that make different numbers of steps, or train different variables, wait for each other for ever, or end with
Horovod's "has been shut down". One exchange of a few values before the first step finds them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import keras

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.collective import allgather_object
from batchhvd.trainer.hvd.world import world

if TYPE_CHECKING:
    from batchhvd.trainer.hvd.binding import Tensor

#: What ranks compare, by a name that is shown to users.
Facts: TypeAlias = "Mapping[str, int | str | None]"


def require_agreement(facts: Facts) -> None:
    """Makes sure that all ranks have the same values.

    Args:
        facts: the values of this rank, with the same names on all ranks. None means unknown and is not compared.

    Raises:
        SpecError: They differ; raised on every rank.
    """
    if world().size == 1:
        return
    everyone = allgather_object(dict(facts), "agreement")
    for name in facts:
        values = [theirs.get(name) for theirs in everyone]
        if len({value for value in values if value is not None}) > 1:
            raise SpecError(
                f"the ranks must have the same {name}, but {_who(values)}", remedy="call it with the same on all ranks"
            )


def _who(values: Sequence[int | str | None]) -> str:
    """Returns which ranks have what, the unusual first."""
    ranks: dict[int | str | None, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(value, []).append(rank)
    common = Counter(values).most_common(1)[0][0]
    unusual = [value for value in ranks if value != common] if len(values) > 2 else []
    order = [*unusual, *(value for value in ranks if value not in unusual)]
    return "; ".join(f"{_named(ranks[value])} {value}" for value in order)


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    return f"ranks {', '.join(map(str, ranks))} have"


def trained(model: keras.Model) -> str | None:
    """Returns the shapes of the variables that a model trains, or None if it is not built yet.

    Not their names, because Keras's names differ between ranks as soon as one of them has made another layer.
    """
    if not model.built or not model.weights:
        return None
    return shapes(model.trainable_variables)


def shapes(variables: Sequence[keras.Variable | Tensor]) -> str:
    """Returns how many variables there are, and the shape of each."""
    each = ["x".join(map(str, variable.shape)) or "1" for variable in variables]
    return f"{len(each)} ({', '.join(each)})"


class EqualStart(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Compares the epochs, the steps of an epoch and the trained variables of all ranks before the first step."""

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Compares what is known before the first epoch."""
        self.began = False
        params = self.params or {}
        compare_start(self.model, params.get("epochs"), params.get("steps"))

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Compares the first epoch."""
        if not self.began:
            self.began = True
            require_agreement({"first epoch": epoch + 1})


def compare_start(model: keras.Model, epochs: int | None, steps: int | None) -> None:
    """Makes sure that all ranks will make the same steps with the same variables; see `require_agreement`."""
    require_agreement({"number of epochs": epochs, "steps per epoch": steps, "trainable variables": trained(model)})


class StopTogether(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Lets all ranks stop after the same epoch if one of them wants to; put it last in the list.

    A rank that wants to stop within an epoch goes on to its end, because the others wait for its gradients.

    Args:
        say: called on rank 0 with a line that names the rank; None says nothing.
    """

    def __init__(self, say: Callable[[str], None] | None = print) -> None:
        super().__init__()
        self.say = say

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Notes that no rank wants to stop."""
        self.wanted = False

    def on_train_batch_end(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Puts a wish to stop off until the end of the epoch."""
        if self.model.stop_training and world().size > 1:
            self.wanted = True
            self.model.stop_training = False

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Stops on all ranks if one of them wants to."""
        wishes = allgather_object(bool(self.wanted or self.model.stop_training), "stop")
        self.model.stop_training = any(wishes)
        if self.say is not None and world().rank == 0 and any(wishes) and not all(wishes):
            who = ", ".join(str(rank) for rank, wish in enumerate(wishes) if wish)
            self.say(f"Training ends after epoch {epoch + 1} on all ranks, because rank {who} asked for it")
