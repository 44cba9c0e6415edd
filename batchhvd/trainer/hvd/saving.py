"""Saving on several ranks: one whole file, whoever saves.

A script saves on rank 0, or, like those of 2018, on all ranks to one path, where all would write into one file at once.
On several ranks `install` lets Keras write beside the path and renames, so that each rank's file is whole and the last
one stays. No rank waits, because nothing tells whether the others save too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

#: ``save`` or ``save_weights`` of a model: model, path, and options of Keras.
Save: TypeAlias = "Callable[..., None]"


def install(rank: int) -> None:
    """Replaces ``save`` and ``save_weights`` of Keras's models in this process, once.

    Args:
        rank: the number of this process, for the names of the files beside the path.
    """
    import keras

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
