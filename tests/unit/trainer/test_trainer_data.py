"""Reading data sets: what is there is read as it should be, what is wrong is named."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchhvd.errors import SpecError
from batchhvd.trainer import data


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "dätä set"
    place.mkdir()
    return place


def batches(place: Path, count: int = 3) -> Path:
    rng = np.random.default_rng(0)
    inner = place / "cifar-10-batches-py"
    inner.mkdir()
    for number, name in enumerate([*data.TRAINING_BATCHES, "test_batch"]):
        pixels = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
        (inner / name).write_bytes(pickle.dumps({b"data": pixels, b"labels": [number] * count}))
    return inner


@pytest.fixture(scope="session")
def digits() -> data.Data:
    """The digits, parsed once for the whole run."""
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    return data.load("digits")


def test_digits_are_enlarged_and_tested_on_the_last_ones(digits: data.Data) -> None:
    assert digits.x_train.shape == (1437, 32, 32, 3) and digits.x_train.dtype == np.uint8
    assert digits.x_test.shape == (360, 32, 32, 3) and digits.x_train.max() == 255
    assert np.array_equal(digits.x_train[:, ::4, ::4], digits.x_train[:, 3::4, 3::4])
    assert np.bincount(digits.y_test).min() >= 30 and not digits.flip


def test_the_digits_are_scikit_learns_own(digits: data.Data) -> None:
    theirs = pytest.importorskip("sklearn.datasets", reason="the digits come with scikit-learn").load_digits()
    assert np.array_equal(np.concatenate([digits.y_train, digits.y_test]), theirs.target)
    small = np.concatenate([digits.x_train, digits.x_test])[:, ::4, ::4, 0]
    assert np.array_equal(small, (theirs.images * 255 / 16).astype(np.uint8))


@pytest.mark.parametrize("outer", [True, False])
def test_cifar10_is_read_from_the_standard_batches(folder: Path, outer: bool) -> None:
    inner = batches(folder)
    found = data.load("cifar10", str(folder if outer else inner))
    assert found.x_train.shape == (15, 32, 32, 3) and list(found.y_train[::3]) == [0, 1, 2, 3, 4]
    raw = pickle.loads((inner / "test_batch").read_bytes())[b"data"]
    assert np.array_equal(found.x_test[1, :, :, 2].ravel(), raw[1, 2048:])


def test_a_missing_batch_is_named(folder: Path) -> None:
    (batches(folder) / "data_batch_4").unlink()
    with pytest.raises(SpecError, match="data_batch_4 is missing; --data-dir"):
        data.load("cifar10", str(folder))


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps({b"data": 1}), pickle.dumps([1, 2])])
def test_a_broken_batch_is_named(folder: Path, content: bytes) -> None:
    (batches(folder) / "data_batch_2").write_bytes(content)
    with pytest.raises(SpecError, match="data_batch_2 is not a CIFAR-10 batch"):
        data.load("cifar10", str(folder))


class Evil:
    """Would run a command where pickles are trusted."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code ran')",)


def test_a_batch_cannot_run_code(folder: Path) -> None:
    (batches(folder) / "data_batch_1").write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
    with pytest.raises(SpecError, match="it asks for builtins.exec"):
        data.load("cifar10", str(folder))


def save(place: Path, **changes: np.ndarray | None) -> str:
    arrays: dict[str, np.ndarray] = {"x_train": np.zeros((4, 20, 20), np.uint8), "y_train": np.array([0, 1, 2, 1])}
    arrays |= {"x_test": np.full((2, 20, 20), 0.5), "y_test": np.array([[2], [0]])}
    path = place / "meine Zahlen.npz"
    kept: dict[str, Any] = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    np.savez(path, **kept)
    return str(path)


def test_a_users_own_arrays(folder: Path) -> None:
    found = data.load(save(folder))
    assert (found.x_train.shape, found.classes, found.name) == ((4, 20, 20, 1), 3, "meine Zahlen")
    assert found.x_test.dtype == np.uint8 and found.x_test[0, 0, 0, 0] == 128
    assert list(found.y_test) == [2, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"y_test": None}, "lacks y_test"),
        ({"x_train": np.zeros((4, 400), np.uint8)}, r"shape \(4, 400\)"),
        ({"y_train": np.array([0, 1, 2])}, "4 pictures and 3 labels"),
        ({"y_train": np.array([0.5, 1, 2, 1])}, "labels .* float64"),
        ({"y_train": np.array([-1, 1, 2, 1])}, "labels .* int64"),
    ],
)
def test_arrays_that_do_not_fit_are_named(folder: Path, changes: dict[str, np.ndarray | None], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        data.load(save(folder, **changes))


def test_what_is_not_there(folder: Path) -> None:
    with pytest.raises(SpecError, match="does not exist"):
        data.load(str(folder / "nothing.npz"))
    with pytest.raises(SpecError, match="no data set 'imagenet'; take one of digits, cifar10"):
        data.load("imagenet")
