"""What can be wrong with a Keras script on Horovod: one function for each kind of defect.

Each rule takes a script and yields what it found. Findings of one kind and cause are joined, so a script that prints
in nine places has one finding with nine lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer.check.legacy import OPTIMIZERS, removed
from batchhvd.trainer.check.script import Finding, Source, finding, keyword, last

_WRITERS = ("save", "save_weights", "save_model", "export", "savez", "savez_compressed", "to_csv")
_LOGGERS = ("ModelCheckpoint", "CSVLogger", "TensorBoard", "BackupAndRestore")
_OURS = "batchhvd.trainer"


def _modules(source: Source) -> list[str]:
    """Returns what the script imports, and what it gets by ``importlib``."""
    return [*(origin or name for name, origin in source.origins.items()), *map(source._module, source.values)]


def _uses_ours(source: Source, *names: str) -> bool:
    """Tells whether the script calls one of these from the trainer of this package."""
    return any(last(call.func) in names and (source.dotted(call.func).startswith(_OURS)) for call in source.calls)


def starts(source: Source) -> Iterator[Finding]:
    """Horovod is imported and initialized."""
    if not any("horovod" in module or module.endswith("hvd") for module in _modules(source)):
        yield finding(
            "no-horovod",
            1,
            "the script does not use Horovod: each rank trains by itself",
            "import batchhvd.trainer.hvd as hvd, and call hvd.init()",
        )
    elif not any(last(call.func) == "init" for call in source.calls):
        yield finding(
            "no-init",
            1,
            "hvd.init() is never called: ranks do not know of one another",
            "call hvd.init() before anything else of hvd",
        )


def pins(source: Source) -> Iterator[Finding]:
    """Each rank of a node has a GPU of its own."""
    names = ("visible_device_list", "set_visible_devices", "set_device", "CUDA_VISIBLE_DEVICES")
    text = ast.dump(source.tree)
    inits = [call for call in source.calls if last(call.func) == "init"]
    trains = any(_trains(source, call) for call in source.calls)
    if inits and trains and not any(name in text for name in names) and not _uses_ours(source, "prepare"):
        yield finding(
            "gpu-not-pinned",
            inits[0],
            "no GPU is chosen by hvd.local_rank(): all ranks of a node share the first one",
            "call batchhvd.trainer.backend.prepare() before keras is imported, or set CUDA_VISIBLE_DEVICES to the "
            "local rank",
        )


def _optimizers(source: Source) -> Iterator[ast.Call]:
    for call in source.calls:
        name = source.dotted(call.func)
        if ".optimizers." in f".{name}" and last(call.func).lower() in {kind.lower() for kind in OPTIMIZERS}:
            yield call


def scales(source: Source) -> Iterator[Finding]:
    """The learning rate grows with the ranks, or something says that it shall not."""
    adjusting = ("LearningRateWarmupCallback", "LearningRateScheduleCallback", "Warmup", "rate", "scaling")
    if any(last(call.func) in adjusting for call in source.calls):
        return
    for call in _optimizers(source):
        rate = keyword(call, "learning_rate", "lr") or (call.args[0] if call.args else None)
        if rate is None or (isinstance(rate, ast.Constant) or _constant(source, rate)):
            yield finding(
                "rate-not-scaled",
                call,
                "the learning rate is the same on any number of ranks, although their common batch is larger",
                "multiply it: batchhvd.trainer.schedule.LINEAR.rate(rate, hvd.size()), with warm-up",
            )


def _constant(source: Source, node: ast.expr) -> bool:
    if not isinstance(node, ast.Name):
        return False
    values = source.values.get(node.id, [])
    return bool(values) and all(isinstance(value, ast.Constant) for value in values)


def wraps(source: Source) -> Iterator[Finding]:
    """The optimizer averages gradients, and truly does."""
    wrapped = [call for call in source.calls if last(call.func) == "DistributedOptimizer"]
    for call in wrapped:
        origin = source.dotted(call.func)
        if origin.startswith(("horovod.keras", "horovod.tensorflow", "horovod._keras")):
            yield finding(
                "broken-wrapper",
                call,
                f"{origin} exchanges no gradient on Keras 3: every rank trains alone, without an error",
                "import batchhvd.trainer.hvd as hvd instead",
            )
    if _uses_ours(source, "fit", "train"):
        return
    for call in source.calls:
        if _compiles(call):
            optimizer = keyword(call, "optimizer") or (call.args[0] if call.args else None)
            if (
                optimizer is not None
                and not source.mentions(optimizer, lambda part: part in wrapped)
                and (not wrapped or _plain(source, optimizer))
            ):
                yield finding(
                    "not-wrapped",
                    call,
                    "the model is compiled with an optimizer that does not average gradients",
                    "optimizer = hvd.DistributedOptimizer(optimizer)",
                )


def _compiles(call: ast.Call) -> bool:
    """Tells a model's compile from that of a regular expression or a function."""
    named = keyword(call, "optimizer", "loss", "metrics") is not None
    return isinstance(call.func, ast.Attribute) and call.func.attr == "compile" and (named or len(call.args) > 1)


def _plain(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or source.mentions(node, lambda part: part in list(_optimizers(source)))


def broadcasts(source: Source) -> Iterator[Finding]:
    """All ranks start with the weights of one."""
    known = (
        "BroadcastGlobalVariablesCallback",
        "broadcast_variables",
        "broadcast_model",
        "broadcast_parameters",
        "broadcast_global_variables",
        "restore",
    )
    fits = [call for call in source.calls if _trains(source, call)]
    if fits and not any(last(call.func) in known for call in source.calls):
        yield finding(
            "no-broadcast",
            fits[0],
            "nothing gives all ranks the same first weights",
            "pass callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)] to fit",
        )


def _trains(source: Source, call: ast.Call) -> bool:
    """Tells a model's fit from that of a data generator, and from this package's, which does everything."""
    method = isinstance(call.func, ast.Attribute) and call.func.attr in ("fit", "fit_generator", "train_on_batch")
    if not method or source.dotted(call.func).startswith(_OURS):
        return False
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    return not source.mentions(receiver, lambda part: isinstance(part, ast.Call) and "Generator" in last(part.func))


def passes(source: Source) -> Iterator[Finding]:
    """Callbacks that are made are given to somebody."""
    for name, values in source.values.items():
        made = [value for value in values if isinstance(value, ast.List) and _has_callback(source, value)]
        if made and not _is_used(source, name):
            fits = [call.lineno for call in source.calls if _trains(source, call)]
            yield Finding(
                "callbacks-not-passed",
                (made[0].lineno, *fits),
                f"the list {name!r} is filled with callbacks and given to nobody: nothing is broadcast, no checkpoint "
                "is written",
                f"pass callbacks={name} to fit",
            )


def _has_callback(source: Source, node: ast.List) -> bool:
    return any(
        isinstance(part, ast.Call)
        and ("Callback" in last(part.func) or ".callbacks." in f".{source.dotted(part.func)}")
        for part in node.elts
    )


def _is_used(source: Source, name: str) -> bool:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            parent = source.parents[node]
            filled = isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend", "insert")
            if not filled:
                return True
    return False


def writes(source: Source) -> Iterator[Finding]:
    """Ranks do not write over one another."""
    for call in source.calls:
        name = last(call.func)
        if source.guarded(call) or any(source.by_rank(argument) for argument in _arguments(call)):
            continue
        if (name in _WRITERS and call.args and isinstance(call.func, ast.Attribute)) or name in _LOGGERS:
            yield finding(
                "shared-path",
                call,
                "every rank writes to the same path at the same time",
                "put it under: if hvd.rank() == 0",
            )
        elif name in ("makedirs", "mkdir") and not _allows_existing(call):
            yield finding(
                "shared-path",
                call,
                "every rank makes the same folder: the second one fails",
                "put it under: if hvd.rank() == 0, or pass exist_ok=True",
            )


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(part.value for part in call.keywords)]


def _allows_existing(call: ast.Call) -> bool:
    value = keyword(call, "exist_ok")
    return isinstance(value, ast.Constant) and value.value is True


def downloads(source: Source) -> Iterator[Finding]:
    """One rank of a node fetches, and the others wait for it."""
    for call in source.calls:
        name = source.dotted(call.func)
        fetches = ".datasets." in name and name.endswith("load_data") or last(call.func) in ("get_file", "urlretrieve")
        if fetches and not source.guarded(call) and not _locked(source, call):
            yield finding(
                "every-rank-downloads",
                call,
                "every rank fetches the data into the same file at the same time",
                'use batchhvd.trainer.data.load("cifar10"), which fetches once for each node under a lock, or let '
                "local rank 0 fetch before hvd.barrier()",
            )


def _locked(source: Source, node: ast.AST) -> bool:
    while node in source.parents:
        node = source.parents[node]
        if isinstance(node, ast.With) and any("lock" in ast.dump(item).lower() for item in node.items):
            return True
    return False


def shards(source: Source) -> Iterator[Finding]:
    """Each rank has its part of the data where the epochs are divided among the ranks."""
    for call in source.calls:
        if not _trains(source, call) or last(call.func) == "train_on_batch":
            continue
        epochs = keyword(call, "epochs")
        divided = source.mentions(epochs, lambda part: _divides(source, part))
        shared = any(source.by_rank(argument) for argument in call.args) or source.by_rank(keyword(call, "x"))
        if divided and not shared and not _shards(source):
            line = next(node for node in _assigned(source, epochs) if node is not None)
            yield Finding(
                "not-sharded",
                (line, call.lineno),
                "the epochs are divided by the ranks, but each rank walks all of "
                "the data: together they make as many passes as before",
                "give each rank its part: x[hvd.rank()::hvd.size()] (or batchhvd.trainer.fit) and keep the epochs",
            )


def _divides(source: Source, node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)) and source.by_size(node.right)


def _shards(source: Source) -> bool:
    return any(last(call.func) in ("shard", "share", "DistributedSampler") for call in source.calls)


def _assigned(source: Source, node: ast.expr | None) -> Iterator[int]:
    for value in source.values.get(node.id, []) if isinstance(node, ast.Name) else ():
        yield value.lineno
    yield node.lineno if node is not None else 1


def prints(source: Source) -> Iterator[Finding]:
    """One rank does the talking."""
    for call in source.calls:
        name = last(call.func)
        if source.guarded(call):
            continue
        elsewhere = keyword(call, "file") is not None or any(source.by_rank(argument) for argument in _arguments(call))
        if name == "print" and not elsewhere:
            yield finding("prints-everywhere", call, "every rank prints the same", "put it under: if hvd.rank() == 0")
        elif _shows_bars(source, call):
            yield finding(
                "bars-everywhere",
                call,
                "every rank shows its progress bar, all in one output",
                "pass verbose=1 if hvd.rank() == 0 else 0",
            )


def _shows_bars(source: Source, call: ast.Call) -> bool:
    verbose = keyword(call, "verbose")
    shows = verbose is None or (isinstance(verbose, ast.Constant) and verbose.value != 0)
    evaluates = isinstance(call.func, ast.Attribute) and call.func.attr in ("evaluate", "predict")
    return shows and (_trains(source, call) and last(call.func) != "train_on_batch" or evaluates)


RULES = (starts, pins, scales, wraps, broadcasts, passes, writes, downloads, shards, prints, removed)


def findings(source: Source) -> list[Finding]:
    """Returns what is wrong with a script, in the order of lines; equal findings are joined."""
    joined: dict[tuple[str, str, str], list[int]] = {}
    for rule in RULES:
        for found in rule(source):
            joined.setdefault((found.kind, found.problem, found.remedy), []).extend(found.lines)
    made = [
        Finding(kind, tuple(dict.fromkeys(lines)), problem, remedy) for (kind, problem, remedy), lines in joined.items()
    ]
    return sorted(made, key=lambda finding: (finding.lines[0], finding.kind))
