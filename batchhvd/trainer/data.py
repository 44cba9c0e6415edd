"""Pictures and labels: CIFAR-10, scikit-learn's digits, or a user's own .npz, always as complete arrays in memory.

Every rank reads the same; :mod:`batchhvd.trainer.shard` decides which rank trains on which picture.
"""

from __future__ import annotations

import fcntl
import importlib.util
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs
import numpy as np
from numpy.typing import NDArray

from batchhvd.errors import SpecError
from batchhvd.trainer.reporting import training_record

DATASETS = ("digits", "cifar10")
TRAINING_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
DIGITS_TESTED = 360  # a fifth of 1,797


@attrs.frozen(eq=False)
class Data:
    """A data set, split into training and test.

    Attributes:
        name: the name that the user gave.
        x_train, x_test: pictures, uint8 (n, height, width, channels), 0 to 255.
        y_train, y_test: labels, int64 (n,), from 0.
        classes: how many different labels there are.
        flip: whether a mirrored picture still shows the same thing (that of a digit does not).
        shift: by how many pixels a picture may be moved in training.
    """

    name: str
    x_train: NDArray[np.uint8] = attrs.field(repr=False)
    y_train: NDArray[np.int64] = attrs.field(repr=False)
    x_test: NDArray[np.uint8] = attrs.field(repr=False)
    y_test: NDArray[np.int64] = attrs.field(repr=False)
    classes: int
    flip: bool = True
    shift: int = 4


def load(name: str, data_dir: str | None = None) -> Data:
    """Loads the data set called ``name``.

    Args:
        name: ``"digits"``, ``"cifar10"`` or the path of an .npz file.
        data_dir: for CIFAR-10, a folder with the standard python batches (or with cifar-10-batches-py); None lets
            Keras download and cache it.

    Raises:
        SpecError: There is no such data set, a file is missing, or a file has the wrong content.
    """
    found = _load(name, data_dir)
    if training_record.is_job():
        arrays = (found.x_train, found.y_train, found.x_test, found.y_test)
        training_record.note("data", {name: training_record.digest(arrays)})
    return found


def _load(name: str, data_dir: str | None) -> Data:
    if name == "digits":
        return digits()
    if name == "cifar10":
        return cifar10_from(Path(data_dir)) if data_dir else cifar10_from_keras()
    if name.endswith(".npz"):
        return from_npz(Path(name))
    raise SpecError(f"there is no data set {name!r}", remedy=f"take one of {', '.join(DATASETS)}, or a file *.npz")


# --- digits: real data that does not need a network ----------------------------------------------------------------


def digits() -> Data:
    """Reads scikit-learn's 1,797 handwritten digits, enlarged to 32×32×3.

    The last 360 are the test set. The file is ordered by writer, so most of the handwriting in the test set is of
    people whom training never saw. Source: UCI, Optical Recognition of Handwritten Digits.
    """
    table = _digits_table()  # (1797, 65)
    small = (table[:, :64].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)  # (1797, 8, 8)
    images = small.repeat(4, axis=1).repeat(4, axis=2)[..., None].repeat(3, axis=3)  # (1797, 32, 32, 3)
    labels = table[:, 64].astype(np.int64)  # (1797,)
    cut = len(images) - DIGITS_TESTED
    return Data("digits", images[:cut], labels[:cut], images[cut:], labels[cut:], classes=10, flip=False, shift=3)


def _digits_table() -> NDArray[np.float64]:
    # Importing scikit-learn takes seconds on every rank, and only one file of its package is needed.
    spec = importlib.util.find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise SpecError("the digits come with scikit-learn, which is not installed", remedy="pip install scikit-learn")
    path = Path(spec.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    if not path.exists():
        raise SpecError(f"scikit-learn's digits are not at {path}", remedy="reinstall scikit-learn")
    return np.loadtxt(path, delimiter=",")


# --- CIFAR-10 ------------------------------------------------------------------------------------------------------


def cifar10_from(folder: Path) -> Data:
    """Reads CIFAR-10 from its standard python batches.

    Source: the file layout of https://www.cs.toronto.edu/~kriz/cifar.html (``data`` uint8 (n, 3072), channels first).

    Raises:
        SpecError: A batch is missing or has the wrong content.
    """
    inner = folder / "cifar-10-batches-py"
    found = inner if inner.is_dir() else folder
    parts = [_read_batch(found / name) for name in TRAINING_BATCHES]
    x_test, y_test = _read_batch(found / "test_batch")
    x_train = np.concatenate([x for x, _ in parts])  # (50000, 32, 32, 3)
    y_train = np.concatenate([y for _, y in parts])  # (50000,)
    return Data("cifar10", x_train, y_train, x_test, y_test, classes=10)


def cifar10_from_keras() -> Data:
    """Downloads CIFAR-10 with Keras's own loader: once per node, under a lock, checked against its SHA-256.

    Raises:
        SpecError: It is not in Keras's cache and could not be downloaded.
    """
    import keras

    cache = Path(keras.config.keras_home()) if hasattr(keras.config, "keras_home") else Path.home() / ".keras"
    with _locked(cache / "cifar10.lock"):
        try:
            (x_train, y_train), (x_test, y_test) = keras.datasets.cifar10.load_data()
        except Exception as error:  # Keras raises a bare Exception if the network fails
            raise SpecError(
                f"CIFAR-10 could not be downloaded: {error}",
                remedy="give --data-dir with a folder that holds cifar-10-batches-py, or take --dataset digits",
            ) from error
    arrays = (x_train, y_train.ravel().astype(np.int64), x_test, y_test.ravel().astype(np.int64))
    return Data("cifar10", *arrays, classes=10)


def _read_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    try:
        with path.open("rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
        pixels, labels = batch[b"data"], np.asarray(batch[b"labels"], np.int64)  # (n, 3072), (n,)
        images = np.asarray(pixels, np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    except FileNotFoundError as error:
        raise SpecError(
            f"{path} is missing", remedy="--data-dir names a folder with all of CIFAR-10's batches"
        ) from error
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{path} is not a CIFAR-10 batch: {error}", remedy="unpack the archive again") from error
    return np.ascontiguousarray(images), labels  # (n, 32, 32, 3), (n,)


class _ArraysOnly(pickle.Unpickler):
    """Reads pickled arrays, and rejects everything that could run code."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) == ("_codecs", "encode") or module.split(".")[0] == "numpy":
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed, even by kill -9
        yield file


# --- a user's own --------------------------------------------------------------------------------------------------


def from_npz(path: Path) -> Data:
    """Reads an .npz file with ``x_train``, ``y_train``, ``x_test`` and ``y_test``.

    Pictures may be uint8 (0 to 255) or floats (0 to 1), (n, height, width) or (n, height, width, channels); labels are
    whole numbers from 0, (n,) or (n, 1).

    Raises:
        SpecError: The file or one of the arrays is missing, or the arrays do not match.
    """
    if not path.is_file():
        raise SpecError(f"the file {path} does not exist", remedy="--dataset names a file that every node can read")
    with np.load(path, allow_pickle=False) as file:
        missing = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in file]
        if missing:
            raise SpecError(f"{path} lacks {', '.join(missing)}", remedy="save all four arrays with numpy.savez")
        x_train, x_test = _pixels(file["x_train"], path), _pixels(file["x_test"], path)
        y_train, y_test = _labels(file["y_train"], path), _labels(file["y_test"], path)
    _check_sizes(path, (x_train, y_train), (x_test, y_test))
    classes = int(max(y_train.max(), y_test.max())) + 1
    return Data(path.stem, x_train, y_train, x_test, y_test, classes)


def _pixels(array: np.ndarray, path: Path) -> NDArray[np.uint8]:
    if array.ndim not in (3, 4):
        raise SpecError(f"pictures in {path} have shape {array.shape}", remedy="give (n, height, width, channels)")
    if array.dtype != np.uint8:
        array = (
            np.rint(np.clip(array, 0, 1) * 255).astype(np.uint8) if array.dtype.kind == "f" else array.astype(np.uint8)
        )
    return array if array.ndim == 4 else array[..., None]


def _labels(array: np.ndarray, path: Path) -> NDArray[np.int64]:
    if array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise SpecError(f"labels in {path} are {array.dtype}", remedy="give whole numbers from 0")
    return array.reshape(len(array), -1)[:, 0].astype(np.int64)


def _check_sizes(path: Path, *pairs: tuple[np.ndarray, np.ndarray]) -> None:
    for x, y in pairs:
        if len(x) != len(y) or not len(x):
            raise SpecError(f"{path} has {len(x)} pictures and {len(y)} labels", remedy="give one label per picture")
