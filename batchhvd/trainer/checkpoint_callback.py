"""The Keras callback that writes checkpoints while all ranks train."""

from __future__ import annotations

from collections.abc import Mapping

import keras

from batchhvd.trainer.checkpoint import Checkpoints, begin_training, take
from batchhvd.trainer.hvd.collective import barrier


class SaveCheckpoints(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Writes a checkpoint at the end of each epoch; see `checkpoint.restore` for resuming from one.

    Put it on every rank, as the last callback, so that the checkpoint contains what the others do at the end of an
    epoch.

    Args:
        checkpoints: the folder, and how many to keep.
        every: epochs between two checkpoints. The last epoch is written only if it is one of these.
    """

    def __init__(self, checkpoints: Checkpoints, every: int = 1) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.every = every

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Continues the random numbers of the checkpoint, if the model was restored from one."""
        begin_training(self.model)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Takes a snapshot on all ranks; rank 0 writes it while the others wait."""
        if (epoch + 1) % self.every == 0:
            snapshot = take(self.model, epoch + 1)
            if snapshot is not None:
                self.checkpoints.write(snapshot)
            barrier()
