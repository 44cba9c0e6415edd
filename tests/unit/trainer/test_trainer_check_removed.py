"""Each name that the check calls removed is gone from the installed Keras and TensorFlow, and each argument is refused.

One start of an interpreter tries them all, because importing TensorFlow is what takes time.
"""

from __future__ import annotations

import json
import os
import subprocess
from importlib.util import find_spec

import pytest

from batchhvd.trainer.check.removed_names import (
    ARGUMENTS,
    CLASS_ARGUMENTS,
    KEPT_BY_TENSORFLOW,
    KERAS,
    MODEL_METHODS,
    OPTIMIZER_ATTRIBUTES,
    TENSORFLOW,
)
from tests.support import prefork

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.skipif(find_spec("tensorflow") is None, reason="TensorFlow is not installed"),
]

PROBE = """
import importlib, json, sys

import keras
import numpy as np
import tensorflow as tf

asked = json.load(sys.stdin)
found = []


def has(path):
    parts = path.split(".")
    value = importlib.import_module(parts[0])
    for number, part in enumerate(parts[1:], 2):
        try:
            value = getattr(value, part)
        except AttributeError:
            try:
                value = importlib.import_module(".".join(parts[:number]))
            except ImportError:
                return False
    return True


def refuses(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except (TypeError, ValueError):
        return True
    return False


found += [name for name in asked["gone"] if has(name)]
found += [f"{name} is gone" for name in asked["there"] if not has(name)]
x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")


def model():
    made = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


found += [name for name in asked["methods"] if hasattr(model(), name)]
optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
found += [name for name in asked["attributes"] if hasattr(optimizer, name)]
given = {"compile": ("sgd", "mse"), "fit": (x, y), "evaluate": (x, y), "predict": (x,), "train_on_batch": (x, y)}
for method, names in asked["arguments"].items():
    for name in names:
        if not refuses(getattr(model(), method), *given[method], **{name: 1}):
            found.append(f"{method} {name}")
classes = {
    "keras.callbacks.ModelCheckpoint": (keras.callbacks.ModelCheckpoint, ("a.keras",)),
    "keras.callbacks.TensorBoard": (keras.callbacks.TensorBoard, ("a",)),
    "keras.layers.BatchNormalization": (keras.layers.BatchNormalization, ()),
    "keras.Model": (keras.Model, ()),
}
for kind, names in asked["classes"].items():
    for name in names:
        if not refuses(classes[kind][0], *classes[kind][1], **{name: 1}):
            found.append(f"{kind} {name}")
for name in ("a.h5", "a.keras"):
    if refuses(keras.callbacks.ModelCheckpoint, name):
        found.append(f"ModelCheckpoint refuses {name}")
for name, options in (("a", {}), ("a.hdf5", {}), ("a.h5", {"save_weights_only": True})):
    if not refuses(keras.callbacks.ModelCheckpoint, name, **options):
        found.append(f"ModelCheckpoint takes {name}")
for method, name in (("save", "a"), ("save_weights", "a.h5"), ("save_weights", "a.ckpt")):
    if not refuses(getattr(model(), method), name):
        found.append(f"{method} takes {name}")
if callable(optimizer.variables):
    found.append("optimizer.variables is a method")
json.dump(found, sys.stdout)
"""


def test_what_is_called_removed_is_gone(tmp_path: object) -> None:
    asked = {
        "gone": [*KERAS, *(f"tensorflow.{name}" for name in TENSORFLOW)],
        "there": [f"tensorflow.{name}" for name in KEPT_BY_TENSORFLOW],
        "methods": list(MODEL_METHODS),
        "attributes": list(OPTIMIZER_ATTRIBUTES),
        "arguments": ARGUMENTS,
        "classes": CLASS_ARGUMENTS,
    }
    ran = subprocess.run(
        prefork.python("tensorflow", "-c", PROBE),
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=str(tmp_path),
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == []
