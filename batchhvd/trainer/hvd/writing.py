"""Callbacks that write files: on several ranks only rank 0 has them, and the others wait where they must."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import keras

from batchhvd.trainer.hvd.collective import barrier, broadcast_object
from batchhvd.trainer.hvd.world import world

_WRITERS = (
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.BackupAndRestore,
    keras.callbacks.CSVLogger,
    keras.callbacks.TensorBoard,
)


class RestoredEpoch(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Tells all ranks the epoch at which rank 0 continues, after `keras.callbacks.BackupAndRestore` has read it."""

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Takes the epoch of rank 0."""
        self.model._initial_epoch = broadcast_object(self.model._initial_epoch, 0, "restored_epoch")


class WrittenFiles(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Makes all ranks wait until rank 0 has written its files, so that any rank may read them after training."""

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        """Waits."""
        barrier()


def restorers(callbacks: Sequence[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of rank 0 that restore a model; they must come before the broadcast."""
    return [one for one in on_this_rank(callbacks) if isinstance(one, keras.callbacks.BackupAndRestore)]


def others(callbacks: Sequence[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of this rank that do not restore a model."""
    return [one for one in on_this_rank(callbacks) if not isinstance(one, keras.callbacks.BackupAndRestore)]


def on_this_rank(callbacks: Sequence[keras.callbacks.Callback]) -> list[keras.callbacks.Callback]:
    """Returns all callbacks on rank 0, and those that write no files on the other ranks."""
    return [one for one in callbacks if world().rank == 0 or not isinstance(one, _WRITERS)]
