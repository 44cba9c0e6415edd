"""Rules about joining the ranks: Horovod is there, knows its ranks, has a GPU for each, and offers what is used."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer.check.finding import Finding, finding
from batchhvd.trainer.check.meaning import Meaning
from batchhvd.trainer.check.parsed_script import keyword, last
from batchhvd.trainer.hvd.unsupported import INSTEAD

_FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "torch", "lightning", "pytorch_lightning", "jax")
_CHANGE = "`import batchhvd.trainer.hvd as {hvd}` instead"
#: Why a name of Horovod's own bindings fails with Keras 3.
_FAILS = {
    "BroadcastGlobalVariablesCallback": "raises AttributeError on Keras 3: its variables have no ref",
    "MetricAverageCallback": "raises AttributeError on Keras 3: keras.backend has no constant",
    "LearningRateWarmupCallback": "raises AttributeError on Keras 3: keras.backend has no get_value",
    "LearningRateScheduleCallback": "raises AttributeError on Keras 3: keras.backend has no get_value",
    "broadcast_global_variables": "raises RuntimeError outside a graph",
    "SyncBatchNormalization": "raises ValueError on Keras 3",
}
#: The same for those of them that take variables: only variables of Keras 3 fail.
_FAILS_WITH_VARIABLES = {
    "DistributedGradientTape": "raises AttributeError with variables of Keras 3",
    "broadcast_variables": "raises AttributeError with variables of Keras 3",
}
_OF_KERAS = ("horovod.keras", "horovod.tensorflow.keras", "horovod.tensorflow")


def starts(meaning: Meaning) -> Iterator[Finding]:
    """Horovod is imported and initialized."""
    lightning = meaning.uses("lightning", "pytorch_lightning") and "horovod" in meaning.script.strings
    if not meaning.horovod and not meaning.uses("batchhvd.trainer") and not lightning:
        if meaning.uses(*_FRAMEWORKS):
            yield finding(
                "no-horovod",
                1,
                "the script does not use Horovod: each rank trains by itself",
                "`import horovod.torch as hvd`, and call `hvd.init()`"
                if meaning.torch
                else "`import batchhvd.trainer.hvd as hvd`, and call `hvd.init()`",
            )
    elif meaning.horovod and not meaning.calls("init") and not meaning.uses_ours("fit", "train", "evaluate"):
        yield finding(
            "no-init",
            1,
            "hvd.init() is never called: ranks do not know of each other",
            "call `{hvd}.init()` before anything else of {hvd}",
        )


def pins(meaning: Meaning) -> Iterator[Finding]:
    """Each rank of a node has a GPU of its own."""
    names = ("visible_device_list", "set_visible_devices", "set_device", "CUDA_VISIBLE_DEVICES")
    text = ast.dump(meaning.script.tree)
    inits = meaning.calls("init")
    trains = meaning.fits or meaning.steps
    if not inits or not trains or any(name in text for name in names) or meaning.uses_ours("prepare"):
        return
    if not meaning.torch:
        yield finding(
            "gpu-not-pinned",
            inits[0],
            "no GPU is chosen by {hvd}.local_rank(): all ranks of a node share the first GPU",
            "`from batchhvd.trainer import backend; backend.prepare()` before keras is imported, or set "
            "CUDA_VISIBLE_DEVICES to the local rank",
        )
    elif "cuda" in text and not any(
        "cuda" in ast.dump(call) and meaning.script.by_rank(call) for call in _devices(meaning)
    ):
        yield finding(
            "gpu-not-pinned",
            inits[0],
            "no GPU is chosen by {hvd}.local_rank(): all ranks of a node share the first GPU",
            "`torch.cuda.set_device({hvd}.local_rank())` after {hvd}.init()",
        )


def _devices(meaning: Meaning) -> list[ast.Call]:
    return meaning.calls("device", "to", "cuda")


def names(meaning: Meaning) -> Iterator[Finding]:
    """What the script uses of Horovod exists, and works with Keras 3."""
    for node in ast.walk(meaning.script.tree):
        for name, origin in _used(meaning, node):
            if origin in (*_OF_KERAS, "batchhvd.trainer.hvd"):
                yield from _name(meaning, node, name, origin)
            elif name == "elastic":
                yield _elastic(node)


def _used(meaning: Meaning, node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields each name of Horovod that a node takes, with the module it is taken from."""
    if isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            yield alias.name, _module(node.module)
    elif isinstance(node, ast.Attribute):
        front = meaning.script.dotted(node.value)
        yield node.attr, _module(front) if "elastic" not in front.split(".") else ""
    elif isinstance(node, ast.Import):
        for alias in node.names:
            front, _, name = alias.name.rpartition(".")
            yield name, _module(front)


def _module(dotted: str) -> str:
    """Returns the module of Horovod that a name stands for; "" for anything else."""
    dotted = dotted.removesuffix(".callbacks")
    return dotted if dotted in (*_OF_KERAS, "batchhvd.trainer.hvd", "horovod.torch", "horovod") else ""


def _name(meaning: Meaning, node: ast.AST, name: str, origin: str) -> Iterator[Finding]:
    ours = origin == "batchhvd.trainer.hvd"
    if name == "elastic":
        yield _elastic(node)
    elif name == "BroadcastGlobalVariablesHook" and not ours:
        yield finding(
            "broken-binding",
            node,
            "BroadcastGlobalVariablesHook is not there with this TensorFlow, which has no estimators",
            "run {hvd}.broadcast_global_variables(0) in the session, after the variables are initialized",
        )
    elif meaning.old_keras or not (ours or meaning.keras_3):
        return
    elif name in INSTEAD and (ours or not _kept(meaning, name)):
        yield finding("unsupported-name", node, f"hvd.{name} is not supported on Keras 3", INSTEAD[name])
    elif not ours and name in _FAILS_WITH_VARIABLES and isinstance(node, ast.Attribute) and _of_models(meaning):
        yield finding("broken-binding", node, f"{origin}.{name} {_FAILS_WITH_VARIABLES[name]}", _CHANGE)
    elif not ours and name in _FAILS and not _wrapper_says_it(meaning):
        yield finding("broken-binding", node, f"{origin}: {name} {_FAILS[name]}", _CHANGE)


def _elastic(node: ast.AST) -> Finding:
    return finding("elastic", node, "in a job ranks do not come and go during a training", INSTEAD["elastic"])


def _kept(meaning: Meaning, name: str) -> bool:
    """Returns whether a name works in the sessions of TensorFlow 1, or with variables that are not Keras's."""
    return (
        meaning.uses("tensorflow.compat.v1")
        or (name in _FAILS and _wrapper_says_it(meaning))
        or not _of_models(meaning)
    )


def _of_models(meaning: Meaning) -> bool:
    """Returns whether the variables of the script are those of Keras's models or layers."""
    return any(
        meaning.name(call.func).startswith(("keras.Sequential", "keras.Model", "keras.models", "keras.layers"))
        or meaning.model(call)
        for call in meaning.script.calls
    )


def _wrapper_says_it(meaning: Meaning) -> bool:
    """Returns whether the finding about the wrapper has the same remedy already."""
    return any(map(broken, [meaning] * len(meaning.script.calls), meaning.script.calls))


def broken(meaning: Meaning, call: ast.Call) -> bool:
    """Returns whether a call wraps an optimizer of Keras 3 in a way that exchanges nothing."""
    if last(call.func) != "DistributedOptimizer" or not meaning.keras_3:
        return False
    inner = keyword(call, "optimizer") or (call.args[0] if call.args else None)
    other = meaning.session_optimizer(inner) or meaning.torch_optimizer(inner)
    return (
        meaning.script.dotted(call.func).startswith(("horovod.keras", "horovod.tensorflow", "horovod._keras"))
        and not other
    )
