"""The rule about names that Keras 3 no longer has, and what replaces them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer.check.parsed_script import Finding, Script, finding, keyword, last

#: Parts of Keras 2 and TensorFlow 1 that Keras 3 no longer has, and what replaces them.
_REMOVED_MODULES = {
    "keras.preprocessing": "use augmentation layers (keras.layers.RandomTranslation, RandomFlip) or "
    "batchhvd.trainer.fit(..., augment=...)",
    "keras.wrappers": "use scikeras",
    "keras.utils.np_utils": "use keras.utils.to_categorical",
    "keras.layers.core": "import from keras.layers",
    "keras.layers.convolutional": "import from keras.layers",
    "keras.layers.normalization": "import from keras.layers",
    "keras.layers.advanced_activations": "import from keras.layers",
    "keras.engine": "import from keras",
    "keras.utils.multi_gpu_model": "start one rank for each GPU",
}
_REMOVED_METHODS = {
    "fit_generator": "use fit, which takes generators (and no workers)",
    "evaluate_generator": "use evaluate, which takes generators",
    "predict_generator": "use predict, which takes generators",
    "predict_classes": "use predict and numpy.argmax",
}
_REMOVED_CALLS = {
    "ConfigProto": "use tf.config.set_visible_devices and tf.config.experimental.set_memory_growth",
    "Session": "TensorFlow runs without sessions: leave it out",
    "set_session": "Keras runs without sessions: leave it out",
    "get_session": "Keras runs without sessions: leave it out",
    "placeholder": "use keras.Input",
    "global_variables_initializer": "variables initialize themselves: leave it out",
}
OPTIMIZERS = ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Nadam", "Ftrl", "Lion", "Muon")
_LOWER = {name.lower(): name for name in OPTIMIZERS}


def removed(script: Script) -> Iterator[Finding]:
    """Names that Keras 3 no longer has are not used."""
    yield from _removed_imports(script)
    for call in script.calls:
        name = last(call.func)
        if isinstance(call.func, ast.Attribute) and name in _REMOVED_METHODS:
            yield finding("removed-api", call, f"{name} is not in Keras 3", _REMOVED_METHODS[name])
        elif name in _REMOVED_CALLS and script.dotted(call.func).startswith(("tensorflow.", "keras.")):
            if ".compat." not in script.dotted(call.func):
                yield finding(
                    "removed-api", call, f"{ast.unparse(call.func)} is from TensorFlow 1", _REMOVED_CALLS[name]
                )
        elif ".optimizers." in f".{script.dotted(call.func)}":
            yield from _removed_options(call, name)
        elif name == "ModelCheckpoint":
            yield from _removed_suffix(call)


def _removed_imports(script: Script) -> Iterator[Finding]:
    for node in ast.walk(script.tree):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        front = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for name in names:
            whole = f"{front}{name}".removeprefix("tensorflow.")
            module = next((old for old in _REMOVED_MODULES if f"{whole}.".startswith(f"{old}.")), None)
            if module:
                yield finding("removed-api", node, f"{module} is not in Keras 3", _REMOVED_MODULES[module])


def _removed_options(call: ast.Call, name: str) -> Iterator[Finding]:
    if name in _LOWER:
        yield finding("removed-api", call, f"optimizers.{name} is not in Keras 3", f"write {_LOWER[name]}")
    if keyword(call, "lr") is not None:
        yield finding("removed-api", call, "the argument lr is not in Keras 3", "write learning_rate")
    if keyword(call, "decay") is not None:
        yield finding(
            "removed-api",
            call,
            "the argument decay is ignored by Keras 3",
            "pass keras.optimizers.schedules.InverseTimeDecay(rate, 1, decay) as learning_rate",
        )


def _removed_suffix(call: ast.Call) -> Iterator[Finding]:
    path = keyword(call, "filepath") or (call.args[0] if call.args else None)
    weights = keyword(call, "save_weights_only")
    only = isinstance(weights, ast.Constant) and weights.value is True
    right = ".weights.h5" if only else ".keras"
    if isinstance(path, ast.Constant) and not str(path.value).endswith(right):
        yield finding(
            "removed-api", call, f"ModelCheckpoint of Keras 3 rejects the path {path.value!r}", f"end it with {right}"
        )
