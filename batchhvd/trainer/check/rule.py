"""Rules for Keras scripts on Horovod: one function for each kind of defect, named after what a right script does.

Each rule takes a script and yields its findings. Findings of one kind and cause are joined, so a script that prints in
nine places has one finding with nine lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer.check.collision import downloads, prints, writes
from batchhvd.trainer.check.legacy import OPTIMIZERS, removed
from batchhvd.trainer.check.parsed_script import OURS, Finding, Script, finding, keyword, last


def _modules(script: Script) -> list[str]:
    """Returns the modules that the script imports, also by ``importlib``."""
    return [*(origin or name for name, origin in script.origins.items()), *map(script.module, script.values)]


def _uses_ours(script: Script, *names: str) -> bool:
    """Returns whether the script calls one of these functions of our trainer."""
    return any(last(call.func) in names and (script.dotted(call.func).startswith(OURS)) for call in script.calls)


def starts(script: Script) -> Iterator[Finding]:
    """Horovod is imported and initialized."""
    if not any("horovod" in module or module.endswith("hvd") for module in _modules(script)):
        yield finding(
            "no-horovod",
            1,
            "the script does not use Horovod: each rank trains by itself",
            "import batchhvd.trainer.hvd as hvd, and call hvd.init()",
        )
    elif not any(last(call.func) == "init" for call in script.calls):
        yield finding(
            "no-init",
            1,
            "hvd.init() is never called: ranks do not know of each other",
            "call hvd.init() before anything else of hvd",
        )


def pins(script: Script) -> Iterator[Finding]:
    """Each rank of a node has a GPU of its own."""
    names = ("visible_device_list", "set_visible_devices", "set_device", "CUDA_VISIBLE_DEVICES")
    text = ast.dump(script.tree)
    inits = [call for call in script.calls if last(call.func) == "init"]
    trains = any(script.trains(call) for call in script.calls)
    if inits and trains and not any(name in text for name in names) and not _uses_ours(script, "prepare"):
        yield finding(
            "gpu-not-pinned",
            inits[0],
            "no GPU is chosen by hvd.local_rank(): all ranks of a node share the first GPU",
            "call batchhvd.trainer.backend.prepare() before keras is imported, or set CUDA_VISIBLE_DEVICES to the "
            "local rank",
        )


def _optimizers(script: Script) -> Iterator[ast.Call]:
    for call in script.calls:
        name = script.dotted(call.func)
        if ".optimizers." in f".{name}" and last(call.func).lower() in {kind.lower() for kind in OPTIMIZERS}:
            yield call


def scales(script: Script) -> Iterator[Finding]:
    """The learning rate grows with the number of ranks, or the script adjusts it in another way."""
    adjusting = ("LearningRateWarmupCallback", "LearningRateScheduleCallback", "Warmup", "rate", "scaling")
    if any(last(call.func) in adjusting for call in script.calls):
        return
    for call in _optimizers(script):
        rate = keyword(call, "learning_rate", "lr") or (call.args[0] if call.args else None)
        if rate is None or (isinstance(rate, ast.Constant) or _constant(script, rate)):
            yield finding(
                "rate-not-scaled",
                call,
                "the learning rate does not depend on the number of ranks, although their common batch grows with it",
                "multiply it: batchhvd.trainer.schedule.LINEAR.rate(rate, hvd.size()), with warm-up",
            )


def _constant(script: Script, node: ast.expr) -> bool:
    if not isinstance(node, ast.Name):
        return False
    values = script.values.get(node.id, [])
    return bool(values) and all(isinstance(value, ast.Constant) for value in values)


def wraps(script: Script) -> Iterator[Finding]:
    """The optimizer averages gradients, with a wrapper that works."""
    wrapped = [call for call in script.calls if last(call.func) == "DistributedOptimizer"]
    for call in wrapped:
        origin = script.dotted(call.func)
        if origin.startswith(("horovod.keras", "horovod.tensorflow", "horovod._keras")):
            yield finding(
                "broken-wrapper",
                call,
                f"{origin} exchanges no gradient on Keras 3: every rank trains alone, without an error",
                "import batchhvd.trainer.hvd as hvd instead",
            )
    if _uses_ours(script, "fit", "train"):
        return
    for call in script.calls:
        if _compiles(call):
            optimizer = keyword(call, "optimizer") or (call.args[0] if call.args else None)
            if (
                optimizer is not None
                and not script.mentions(optimizer, lambda part: part in wrapped)
                and (not wrapped or _plain(script, optimizer))
            ):
                yield finding(
                    "not-wrapped",
                    call,
                    "the model is compiled with an optimizer that does not average gradients",
                    "optimizer = hvd.DistributedOptimizer(optimizer)",
                )


def _compiles(call: ast.Call) -> bool:
    """Returns whether a call compiles a model, not a regular expression or a function."""
    named = keyword(call, "optimizer", "loss", "metrics") is not None
    return isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and (named or len(call.args) > 1)


def _plain(script: Script, node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or script.mentions(node, lambda part: part in list(_optimizers(script)))


def broadcasts(script: Script) -> Iterator[Finding]:
    """All ranks start with the weights of one rank."""
    known = (
        "BroadcastGlobalVariablesCallback",
        "broadcast_variables",
        "broadcast_model",
        "broadcast_parameters",
        "broadcast_global_variables",
        "restore",
    )
    fits = [call for call in script.calls if script.trains(call)]
    if fits and not any(last(call.func) in known for call in script.calls):
        yield finding(
            "no-broadcast",
            fits[0],
            "nothing gives all ranks the same first weights",
            "pass callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)] to fit",
        )


def passes(script: Script) -> Iterator[Finding]:
    """Callbacks that are created are passed on."""
    for name, values in script.values.items():
        made = [value for value in values if isinstance(value, ast.List) and _has_callback(script, value)]
        if made and not _is_used(script, name):
            fits = [call.lineno for call in script.calls if script.trains(call)]
            yield Finding(
                "callbacks-not-passed",
                (made[0].lineno, *fits),
                f"the list {name!r} is filled with callbacks and never passed on: nothing is broadcast, no checkpoint "
                "is written",
                f"pass callbacks={name} to fit",
            )


def _has_callback(script: Script, node: ast.List) -> bool:
    return any(
        isinstance(part, ast.Call)
        and ("Callback" in last(part.func) or ".callbacks." in f".{script.dotted(part.func)}")
        for part in node.elts
    )


def _is_used(script: Script, name: str) -> bool:
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            parent = script.parents[node]
            filled = isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend", "insert")
            if not filled:
                return True
    return False


def shards(script: Script) -> Iterator[Finding]:
    """Each rank has its part of the data, if the epochs are divided among the ranks."""
    for call in script.calls:
        if not script.trains(call) or last(call.func) == "train_on_batch":
            continue
        epochs = keyword(call, "epochs")
        divided = script.mentions(epochs, lambda part: _divides(script, part))
        shared = any(script.by_rank(argument) for argument in call.args) or script.by_rank(keyword(call, "x"))
        if divided and not shared and not _shards(script):
            line = next(node for node in _assigned(script, epochs) if node is not None)
            yield Finding(
                "not-sharded",
                (line, call.lineno),
                "the epochs are divided by the number of ranks, but each rank passes over all of "
                "the data: together they make as many passes as before",
                "give each rank its part: x[hvd.rank()::hvd.size()] (or batchhvd.trainer.fit) and keep the epochs",
            )


def _divides(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)) and script.by_size(node.right)


def _shards(script: Script) -> bool:
    return any(last(call.func) in ("shard", "share", "DistributedSampler") for call in script.calls)


def _assigned(script: Script, node: ast.expr | None) -> Iterator[int]:
    for value in script.values.get(node.id, []) if isinstance(node, ast.Name) else ():
        yield value.lineno
    yield node.lineno if node is not None else 1


RULES = (starts, pins, scales, wraps, broadcasts, passes, writes, downloads, shards, prints, removed)


def findings(script: Script) -> list[Finding]:
    """Returns the findings in a script, in the order of lines; equal findings are joined."""
    joined: dict[tuple[str, str, str], list[int]] = {}
    for rule in RULES:
        for found in rule(script):
            joined.setdefault((found.kind, found.problem, found.remedy), []).extend(found.lines)
    made = [
        Finding(kind, tuple(dict.fromkeys(lines)), problem, remedy) for (kind, problem, remedy), lines in joined.items()
    ]
    return sorted(made, key=lambda finding: (finding.lines[0], finding.kind))
