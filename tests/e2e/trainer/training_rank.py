"""Is one rank of test_training_ranks.py: ``python training_rank.py WHAT FOLDER``."""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from batchhvd.trainer import backend

backend.prepare()

import keras  # noqa: E402  after the preparation on purpose
import numpy as np  # noqa: E402

import batchhvd.trainer as trainer  # noqa: E402
from batchhvd.trainer import hvd, train  # noqa: E402
from batchhvd.trainer.data import load  # noqa: E402
from batchhvd.trainer.shard import Augment  # noqa: E402


def main(what: str, folder: Path) -> None:
    """Does one thing."""
    hvd.init()
    {"fit": fit, "forms": forms, "die": die}[what](folder)


def fit(folder: Path) -> None:
    """Trains a network with dropout and batch normalisation from a start of each rank's own."""
    backend.seed(hvd.rank())
    data = load(str(folder / "ziffern klein.npz"))
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((32, 32, 3)), layers.Conv2D(8, 3, strides=2), layers.BatchNormalization(), layers.ReLU()]
        + [layers.MaxPooling2D(3), layers.Dropout(0.3), layers.Flatten(), layers.Dense(10, activation="softmax")]
    )
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy"])
    x, y = data.x_train, train.one_hot(data.y_train, 10)
    test = data.x_test, train.one_hot(data.y_test, 10)
    lines: list[str] = []
    result = trainer.fit(
        model,
        (x, y),
        validation=test,
        epochs=2,
        batch_size=24,
        augment=Augment(2),
        pictures=True,
        progress=lines.append,
    )
    whole = model.evaluate(test[0] / np.float32(255), test[1], verbose=0, return_dict=True)
    write(folder, result, model, lines=lines, whole=whole)
    forms(folder)


def forms(folder: Path) -> None:
    """Trains on each form of data that this backend takes, one after the other."""
    x = np.random.default_rng(0).normal(size=(50, 6)).astype("float32")
    y = (x.sum(axis=1) > 0).astype("float32")
    sources = {"arrays": (x, y), "weighted": (x, y, np.ones(50, "float32")), **streams(x, y)}
    answers = {}
    for name, source in sources.items():
        backend.seed(0)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, activation="sigmoid")])
        model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy")
        result = trainer.fit(model, source, epochs=8, batch_size=10, progress=None)
        answers[name] = {"steps": result.steps, "loss": result.history["loss"]}
    (folder / f"forms-{hvd.rank()}.json").write_text(json.dumps(answers))


def streams(x: Any, y: Any) -> dict[str, Any]:
    """Returns the backend's own kinds of data."""
    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        return {"tf.data": tf.data.Dataset.from_tensor_slices((x, y)).shuffle(50, seed=1).batch(10)}
    import torch.utils.data as torch_data

    pairs = torch_data.TensorDataset(*map(torch_tensor, (x, y)))
    return {"loader": torch_data.DataLoader(pairs, batch_size=10, shuffle=True)}


def torch_tensor(array: Any) -> Any:
    """Makes a tensor of an array."""
    import torch

    return torch.as_tensor(array)


def die(folder: Path) -> None:
    """Trains as the command does, and kills rank 1 in the third epoch."""

    class Die(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 2 and int(self.model.optimizer.iterations) > 2 * self.params["steps"] and hvd.rank() == 1:
                os._exit(9)

    writers = train.writers
    train.writers = lambda settings: [*writers(settings), Die()]
    train.train(train.parse(["--dir", str(folder), "--dataset", str(folder / "ziffern klein.npz"), "--epochs", "4"]))


def write(folder: Path, result: Any, model: Any, **more: Any) -> None:
    """Writes down what this rank found."""
    digest = sha256(b"".join(np.ascontiguousarray(weight).tobytes() for weight in model.get_weights())).hexdigest()
    found = {"digest": digest, "steps": result.steps, "metrics": dict(result.metrics), "ranks": result.ranks, **more}
    (folder / f"rank-{hvd.rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
