"""The rule about what Keras 3, TensorFlow 2 and Lightning 2 no longer take, and what replaces it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from batchhvd.trainer.check.finding import Finding, finding
from batchhvd.trainer.check.meaning import OPTIMIZERS, Meaning, plain
from batchhvd.trainer.check.parsed_script import keyword, last
from batchhvd.trainer.check.removed_names import (
    ARGUMENTS,
    CLASS_ARGUMENTS,
    KEPT_BY_TENSORFLOW,
    KERAS,
    LIGHTNING,
    MODEL_METHODS,
    OPTIMIZER_ATTRIBUTES,
    TENSORFLOW,
)

_LOWER = {name.lower(): name for name in OPTIMIZERS}
_DATASET_METHODS = ("make_one_shot_iterator", "make_initializable_iterator")


def removed(meaning: Meaning) -> Iterator[Finding]:
    """Names, arguments and paths that the installed versions do not take are not used."""
    if meaning.old_keras:
        return
    yield from _imports(meaning)
    for node in ast.walk(meaning.script.tree):
        if isinstance(node, ast.Attribute):
            yield from _attribute(meaning, node)
    for call in meaning.script.calls:
        yield from _call(meaning, call)


# --- names ------------------------------------------------------------------------------------------------------------


def _imports(meaning: Meaning) -> Iterator[Finding]:
    for node in ast.walk(meaning.script.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        if not isinstance(meaning.script.parents.get(node), (ast.Try, ast.ExceptHandler)):
            for name in names:
                yield from _gone(node, name, name)


def _attribute(meaning: Meaning, node: ast.Attribute) -> Iterator[Finding]:
    whole = meaning.script.dotted(node)
    if whole and _gone_name(meaning.script.dotted(node.value)) is None:
        name = whole if _origin_is_module(meaning, node) else ""
        yield from _gone(node, name, ast.unparse(node))
    if node.attr in OPTIMIZER_ATTRIBUTES and not whole and meaning.optimizer(node.value):
        yield finding(
            "removed-api",
            node,
            f"an optimizer of Keras 3 has no {node.attr}",
            OPTIMIZER_ATTRIBUTES[node.attr],
        )


def _origin_is_module(meaning: Meaning, node: ast.AST) -> bool:
    """Returns whether a dotted name does not begin with something whose import is a finding already."""
    while isinstance(node, ast.Attribute):
        node = node.value
    origin = meaning.script.origins.get(node.id, "") if isinstance(node, ast.Name) else ""
    return not (origin and _gone_name(origin))


def _gone(node: ast.AST, name: str, shown: str) -> Iterator[Finding]:
    found = _gone_name(name)
    if found is None:
        return
    old, remedy = found
    version = "is from TensorFlow 1" if old.startswith("tensorflow.") else "is not in Keras 3"
    shown = old if isinstance(node, (ast.Import, ast.ImportFrom)) else shown
    yield finding("removed-api", node, f"{shown} {version}", remedy)


def _gone_name(name: str) -> tuple[str, str] | None:
    """Returns the removed name that a dotted name is or begins with, and what replaces it."""
    own = plain(name)
    for old, remedy in KERAS.items():
        if f"{own}.".startswith(f"{old}.") and not (own != name and old.startswith(KEPT_BY_TENSORFLOW)):
            return old, remedy
    if own.startswith(("tensorflow.compat.", "tensorflow.keras")):
        return None
    for old, remedy in TENSORFLOW.items():
        if f"{name}.".startswith(f"tensorflow.{old}."):
            return f"tensorflow.{old}", remedy
    return None


# --- calls ------------------------------------------------------------------------------------------------------------


def _call(meaning: Meaning, call: ast.Call) -> Iterator[Finding]:
    name = meaning.name(call.func)
    if name in (f"keras.optimizers.{last(call.func)}", "keras.optimizers.legacy"):
        yield from _optimizer(call, last(call.func))
    elif name in CLASS_ARGUMENTS or name.replace("keras.models.", "keras.") in CLASS_ARGUMENTS:
        yield from _arguments(call, CLASS_ARGUMENTS[name.replace("keras.models.", "keras.")], last(call.func))
    if name == "keras.callbacks.ModelCheckpoint":
        yield from _checkpoint(meaning, call)
    if isinstance(call.func, ast.Attribute):
        yield from _method(meaning, call, call.func)
    if last(call.func) == "Trainer" and name.startswith(("lightning", "pytorch_lightning")):
        yield from _lightning(call)


def _method(meaning: Meaning, call: ast.Call, func: ast.Attribute) -> Iterator[Finding]:
    model = meaning.model(func.value) or (func.attr in ("fit", "fit_generator") and meaning.trains(call))
    if not meaning.keras_3:
        pass
    elif func.attr in MODEL_METHODS and (model or func.attr.endswith(("_generator", "_classes"))):
        yield finding("removed-api", call, f"{func.attr} is not in Keras 3", MODEL_METHODS[func.attr])
    elif func.attr in ARGUMENTS and (model or func.attr == "compile"):
        yield from _arguments(call, ARGUMENTS[func.attr], func.attr)
    elif func.attr == "variables" and meaning.optimizer(func.value):
        yield finding("removed-api", call, "optimizer.variables of Keras 3 is a list, not a method", "write variables")
    elif func.attr in ("save", "save_weights") and model:
        yield from _save(meaning, call, func.attr)
    if func.attr in _DATASET_METHODS and any("tensorflow.data" in one for one in meaning.made(func.value)):
        yield finding("removed-api", call, f"{func.attr} is from TensorFlow 1", "iterate over the dataset")


def _arguments(call: ast.Call, gone: Mapping[str, str], name: str) -> Iterator[Finding]:
    for part in call.keywords:
        if part.arg is not None and part.arg in gone:
            yield finding("removed-api", part, f"{name} of Keras 3 does not take {part.arg}", gone[part.arg])


def _optimizer(call: ast.Call, name: str) -> Iterator[Finding]:
    if name in _LOWER:
        yield finding("removed-api", call.func, f"optimizers.{name} is not in Keras 3", f"write {_LOWER[name]}")
    for part in call.keywords:
        if part.arg == "lr":
            yield finding("removed-api", part, "the argument lr is not in Keras 3", "write learning_rate")
        elif part.arg == "decay":
            yield finding(
                "removed-api",
                part,
                "the argument decay is ignored by Keras 3",
                "pass keras.optimizers.schedules.InverseTimeDecay(rate, 1, decay) as learning_rate",
            )


def _checkpoint(meaning: Meaning, call: ast.Call) -> Iterator[Finding]:
    path = keyword(call, "filepath") or (call.args[0] if call.args else None)
    weights = keyword(call, "save_weights_only")
    only = isinstance(weights, ast.Constant) and weights.value is True
    unsure = weights is not None and not isinstance(weights, ast.Constant)
    right = (".weights.h5",) if only else (".keras", ".h5")
    yield from _suffix(meaning, path, "ModelCheckpoint", () if unsure else right)


def _save(meaning: Meaning, call: ast.Call, name: str) -> Iterator[Finding]:
    path = keyword(call, "filepath") or (call.args[0] if call.args else None)
    right = (".weights.h5",) if name == "save_weights" else (".keras", ".h5", ".hdf5")
    yield from _suffix(meaning, path, name, right)
    form = keyword(call, "save_format")
    if form is not None and (name == "save_weights" or not _end(meaning, path).endswith(right)):
        yield finding(
            "removed-api", call, f"{name} of Keras 3 does not take save_format", f"end the path with {right[0]}"
        )


def _suffix(meaning: Meaning, path: ast.expr | None, name: str, right: tuple[str, ...]) -> Iterator[Finding]:
    end = _end(meaning, path)
    if path is not None and end and right and not end.endswith(right):
        text = ast.unparse(path)
        yield finding("removed-api", path, f"{name} of Keras 3 rejects the path {text}", f"end it with {right[0]}")


def _end(meaning: Meaning, path: ast.expr | None) -> str:
    """Returns how a path ends, as far as it is written in the script; "" if it is not."""
    if isinstance(path, ast.Constant) and isinstance(path.value, str):
        return path.value
    if isinstance(path, ast.JoinedStr) and path.values:
        return _end(meaning, path.values[-1])
    if isinstance(path, ast.BinOp):
        return _end(meaning, path.right if isinstance(path.op, (ast.Add, ast.Div)) else path.left)
    if isinstance(path, ast.Call):
        joins = last(path.func) in ("join", "Path", "str")
        formats = last(path.func) == "format" and isinstance(path.func, ast.Attribute)
        inner = path.args[-1] if joins and path.args else path.func.value if formats else None  # type: ignore[attr-defined]
        return _end(meaning, inner)
    values = meaning.script.named(path) if isinstance(path, (ast.Name, ast.Attribute)) else []
    return _end(meaning, values[0]) if len(values) == 1 else ""


def _lightning(call: ast.Call) -> Iterator[Finding]:
    for part in call.keywords:
        horovod = isinstance(part.value, ast.Constant) and part.value.value == "horovod"
        if part.arg in ("strategy", "accelerator", "distributed_backend") and horovod:
            yield finding("removed-api", part, f'{part.arg}="horovod" is not in Lightning 2', LIGHTNING)
