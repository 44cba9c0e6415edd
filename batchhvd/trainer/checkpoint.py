"""Checkpoints that are complete or absent, and resume exactly: epoch, step, weights, optimizer, random state.

One file holds one checkpoint: arrays and a JSON note in numpy's ``.npz`` format. It is written under a temporary
name, forced to the disk and renamed, so a process that is killed at any moment leaves the previous checkpoint. Rank 0
writes and reads; the other ranks receive everything from rank 0, so a folder on the node of rank 0 is enough.
"""

from __future__ import annotations

import json
import os
import re
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from attrs import field, frozen

from batchhvd.errors import SpecError
from batchhvd.trainer.hvd.collective import allgather_object, broadcast_object
from batchhvd.trainer.hvd.variable import as_array
from batchhvd.trainer.hvd.world import world
from batchhvd.trainer.random_state import RandomState, random_state, set_random_state

if TYPE_CHECKING:
    import keras

_NAME = re.compile(r"checkpoint-(\d{5,})\.npz")
_NOTE = "note"


@frozen
class Snapshot:
    """The content of one checkpoint.

    Attributes:
        epoch: number of finished epochs; the next epoch has this number, counted from 0.
        step: number of steps that the optimizer had made.
        ranks: how many ranks trained.
        weights: the model's, in Keras's order.
        optimizer: the optimizer's variables, in Keras's order.
        randomness: the random state of each rank.
    """

    epoch: int
    step: int
    ranks: int
    weights: list[np.ndarray] = field(repr=False)
    optimizer: list[np.ndarray] = field(repr=False)
    randomness: Sequence[RandomState] = field(repr=False)


@frozen
class TrainingPosition:
    """The point from which training continues.

    Attributes:
        epoch: the next epoch, counted from 0, for ``fit(initial_epoch=...)``.
        step: steps made so far.
        ranks: how many ranks wrote the checkpoint; 0 if there was no checkpoint.
    """

    epoch: int = 0
    step: int = 0
    ranks: int = 0


@frozen
class Checkpoints:
    """The checkpoints of one training, in one folder.

    Attributes:
        folder: where they are; created when the first is written.
        keep: how many of the newest are kept.
    """

    folder: Path = field(converter=Path)
    keep: int = 3

    def paths(self) -> list[Path]:
        """Returns the checkpoints, oldest first."""
        found = ((_NAME.fullmatch(path.name), path) for path in self.folder.glob("checkpoint-*.npz"))
        return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]

    def write(self, snapshot: Snapshot) -> Path:
        """Writes a checkpoint and removes those that are too old. Only one process may do this at a time."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._remove_old()  # left by a writer that was killed: there is never more than one too many
        path = self.folder / f"checkpoint-{snapshot.epoch:05d}.npz"
        partial = path.with_suffix(".part")
        with partial.open("wb") as stream:
            np.savez(stream, **_pack(snapshot))
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
        _sync(self.folder)
        self._remove_old()
        return path

    def _remove_old(self) -> None:
        for old in self.paths()[: -self.keep]:
            old.unlink()

    def latest(self) -> Snapshot | None:
        """Returns the newest checkpoint, or None if there is none.

        A checkpoint that cannot be read, for example after a disk fault, is skipped with a warning.
        """
        for path in reversed(self.paths()):
            try:
                return _unpack(path)
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                warnings.warn(f"{path} cannot be read ({error}); taking the previous checkpoint", stacklevel=2)
        return None


def _sync(folder: Path) -> None:
    """Forces the rename to the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _pack(snapshot: Snapshot) -> dict[str, Any]:
    arrays = {f"weight/{number:05d}": array for number, array in enumerate(snapshot.weights)}
    arrays |= {f"optimizer/{number:05d}": array for number, array in enumerate(snapshot.optimizer)}
    arrays |= {
        f"random/{rank:05d}/{name}": np.asarray(value)
        for rank, state in enumerate(snapshot.randomness)
        for name, value in state.items()
    }
    note: dict[str, object] = {"epoch": snapshot.epoch, "step": snapshot.step, "ranks": snapshot.ranks}
    note |= {"weights": len(snapshot.weights), "optimizer": len(snapshot.optimizer)}
    # Types unknown to numpy itself (bfloat16) would come back as raw bytes, so their names are stored too.
    note["types"] = {name: str(array.dtype) for name, array in arrays.items() if array.dtype.kind == "V"}
    return {**arrays, _NOTE: np.asarray(json.dumps(note))}


def _unpack(path: Path) -> Snapshot:
    with np.load(path, allow_pickle=False) as archive:
        note = json.loads(str(archive[_NOTE]))
        arrays = {name: _typed(archive[name], note["types"].get(name)) for name in archive.files if name != _NOTE}
    weights = [arrays[f"weight/{number:05d}"] for number in range(note["weights"])]
    optimizer = [arrays[f"optimizer/{number:05d}"] for number in range(note["optimizer"])]
    randomness: list[dict[str, str | np.ndarray]] = [{} for _ in range(note["ranks"])]
    for name, array in arrays.items():
        kind, _, rest = name.partition("/")
        if kind == "random":
            rank, _, key = rest.partition("/")
            randomness[int(rank)][key] = array
    return Snapshot(note["epoch"], note["step"], note["ranks"], weights, optimizer, randomness)


def _typed(array: np.ndarray, name: str | None) -> np.ndarray:
    if name is None:
        return array
    import ml_dtypes

    return array.view(np.dtype(getattr(ml_dtypes, name)))


def take(model: keras.Model, epoch: int) -> Snapshot | None:
    """Takes a snapshot on all ranks together; returns it on rank 0 and None on the others.

    Args:
        model: built and compiled.
        epoch: number of finished epochs.
    """
    randomness = allgather_object(random_state(model), "randomness")
    if world().rank != 0:
        return None
    optimizer = [as_array(variable) for variable in model.optimizer.variables]
    step = int(as_array(model.optimizer.iterations))
    return Snapshot(epoch, step, world().size, [as_array(weight) for weight in model.weights], optimizer, randomness)


def restore(model: keras.Model, checkpoints: Checkpoints) -> TrainingPosition:
    """Restores the newest checkpoint into a model on all ranks together, and returns where to continue.

    Any number of ranks may resume. With the same number, training continues exactly. With another number, ranks that
    existed before continue their random states, the optimizer's step number is converted so that it stands for as many
    samples, and the learning rate stays the one that the optimizer was made with, since that suits the new number.

    Args:
        model: built and compiled as when the checkpoint was written.
        checkpoints: where to look; only rank 0 looks.

    Returns:
        Epoch 0 if there is no checkpoint.

    Raises:
        SpecError: The model is not built, or does not match the checkpoint.
    """
    if not model.built:
        raise SpecError("a model must be built before a checkpoint is restored", remedy="call it on a batch once")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    snapshot: Snapshot | None = broadcast_object(checkpoints.latest() if world().rank == 0 else None, 0, "checkpoint")
    if snapshot is None:
        return TrainingPosition()
    _assign(model.weights, snapshot.weights, "weights")
    step = _restore_optimizer(model.optimizer, snapshot, world().size)
    if world().rank < len(snapshot.randomness):
        _resumed[model] = snapshot.randomness[world().rank]
        set_random_state(model, _resumed[model])
    return TrainingPosition(snapshot.epoch, step, snapshot.ranks)


# The random states of models that were restored and have not been trained since then.
_resumed: WeakKeyDictionary[keras.Model, RandomState] = WeakKeyDictionary()


def begin_training(model: keras.Model) -> None:
    """Restores the random state of a restored model a second time, just before its first step.

    On PyTorch, Keras's ``fit`` draws random numbers before that step: it traces the model and opens the data.
    """
    state = _resumed.pop(model, None)
    if state is not None:
        set_random_state(model, state)


def _restore_optimizer(optimizer: keras.optimizers.Optimizer, snapshot: Snapshot, ranks: int) -> int:
    """Restores the variables of the optimizer and returns its step; see `restore` for another number of ranks."""
    arrays = list(snapshot.optimizer)
    if ranks != snapshot.ranks:
        every = getattr(optimizer, "inner_optimizer", optimizer).gradient_accumulation_steps or 1
        for place, variable in enumerate(optimizer.variables):
            if variable.name == "iteration":
                scaled = arrays[place] * snapshot.ranks / ranks
                arrays[place] = np.asarray(round(float(scaled) / every) * every, arrays[place].dtype)
            elif variable.name == "learning_rate":
                arrays[place] = as_array(variable)
    _assign(optimizer.variables, arrays, "optimizer variables")
    return int(as_array(optimizer.iterations))


def _assign(variables: Sequence[keras.Variable], arrays: list[np.ndarray], what: str) -> None:
    if [tuple(variable.shape) for variable in variables] != [tuple(array.shape) for array in arrays]:
        raise SpecError(
            f"the checkpoint's {len(arrays)} {what} do not fit the model's {len(variables)}",
            remedy="resume with the model and optimizer that wrote it, or take another folder",
        )
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)
