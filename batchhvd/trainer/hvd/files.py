"""Files on several ranks: callbacks that write do so on rank 0, and a model that all ranks save is one whole file.

A script saves on rank 0, or, like those of 2018, on all ranks to one path, where all would write into one file at once.
On several ranks `install` lets Keras write beside the path and renames, so that each rank's file is whole and the last
one stays. No rank waits, because nothing tells whether the others save too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import keras

from batchhvd.trainer.hvd.collective import barrier, broadcast_object
from batchhvd.trainer.hvd.world import world

#: ``save`` or ``save_weights`` of a model: model, path, and options of Keras.
Save: TypeAlias = "Callable[..., None]"


def install(rank: int) -> None:
    """Replaces ``save`` and ``save_weights`` of Keras's models in this process, once.

    Args:
        rank: the number of this process, for the names of the files beside the path.
    """
    for name in ("save", "save_weights"):
        plain = getattr(keras.Model, name)
        if plain.__module__ != __name__:
            setattr(keras.Model, name, _beside(plain, rank))


def _beside(plain: Save, rank: int) -> Save:
    def save(model: object, filepath: str | Path, overwrite: bool = True, **options: object) -> None:
        path = _file(filepath)
        if path is None or not overwrite or path.is_dir():
            plain(model, filepath, overwrite=overwrite, **options)
            return
        first, _, suffixes = path.name.partition(".")
        partial = path.with_name(f".{first}-rank{rank}-{os.getpid()}.{suffixes}")
        try:
            plain(model, partial, overwrite=True, **options)
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    functools.update_wrapper(save, plain)
    save.__module__ = __name__  # by which a second call of install knows it
    return save


def _file(filepath: str | Path) -> Path | None:
    """Returns the path of a local file that Keras writes in one piece; None for others."""
    if not isinstance(filepath, (str, os.PathLike)) or "://" in str(filepath):
        return None
    path = Path(filepath)
    return path if path.suffix in (".keras", ".h5", ".hdf5") else None


# --- callbacks -----------------------------------------------------------------------------------------------------

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
