"""What a training was made of, as it says itself: ``run-training.json`` beside the folder of the job's logs.

Rank 0 writes it when the training begins, and again when it has ended, with a digest of the weights: two runs of one
digest have the same weights, bit for bit. Outside of a job nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

FILE = "run-training.json"
"""The file's name, beside the folder of the job's logs."""

_FOLDER = "AZ_BATCHAI_STDOUTERR_DIR"
_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_ENABLE_ONEDNN_OPTS")
_noted: dict[str, object] = {}


def is_job() -> bool:
    """Says whether this process belongs to a job, so that a record is written."""
    return _FOLDER in os.environ


def note(name: str, value: object) -> None:
    """Adds a fact to the record: a seed, the digest of data. It is written with the next one that is."""
    _noted[name] = value


def begin(backend: str, ranks: int, exchange: str) -> None:
    """Writes what the training is made of; call it on rank 0.

    Args:
        backend: the Keras backend.
        ranks: how many ranks train together.
        exchange: what combines their gradients, such as ``horovod.tensorflow``.
    """
    if not is_job():
        return
    found = reversed(list(metadata.distributions()))  # the first on the path is the one that is imported
    packages = {str(one.metadata["Name"]).lower(): one.version for one in found}
    note("backend", backend)
    note("ranks", ranks)
    note("exchange", exchange)
    note("python", platform.python_version())
    note("packages", dict(sorted(packages.items())))
    note("threads", {name: os.environ[name] for name in _THREADS if name in os.environ})
    _write()


def end(weights: Iterable[np.ndarray], metrics: Mapping[str, float]) -> None:
    """Writes the digest of the weights and the last metrics; call it on rank 0."""
    if not is_job():
        return
    note("weights", digest(weights))
    note("metrics", {name: float(value) for name, value in metrics.items()})
    _write()


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Returns the SHA-256 of arrays: of their types, shapes and values."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(memoryview(array.copy(order="C")).cast("B") if array.size else b"")
    return found.hexdigest()


def _write() -> None:
    path = Path(os.environ[_FOLDER]).parent / FILE
    beside = path.with_name(f".{FILE}")
    beside.write_text(json.dumps(_noted, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)
