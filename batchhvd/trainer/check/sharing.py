"""Rules about what is handed to the training: callbacks that are passed on, and each rank's part of the data."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from batchhvd.trainer.check.finding import Finding, finding
from batchhvd.trainer.check.meaning import Meaning
from batchhvd.trainer.check.parsed_script import Script, arguments, keyword, last

_SHARERS = ("shard", "share", "DistributedSampler", "ElasticSampler", "distribute", "batch_for_rank")
#: What gives the same data on every rank; only arguments that are the same count.
_LOADERS = ("load_data", "load", "loadtxt", "genfromtxt", "zeros", "ones", "arange", "eye", "linspace", "read_csv")
_DRAWS = (
    "normal",
    "random",
    "rand",
    "randn",
    "integers",
    "randint",
    "uniform",
    "standard_normal",
    "choice",
    "permutation",
)


def passes(meaning: Meaning) -> Iterator[Finding]:
    """Callbacks that are created are passed on."""
    for name, values in meaning.script.values.items():
        made = [value for value in values if isinstance(value, ast.List) and _has_callback(meaning, value)]
        if made and not _is_used(meaning.script, name):
            yield finding(
                "callbacks-not-passed",
                made[0],
                f"the list {name!r} is filled with callbacks and never passed on: nothing is broadcast, no checkpoint "
                "is written",
                f"pass `callbacks={name}` to fit",
                *meaning.fits,
            )


def _has_callback(meaning: Meaning, node: ast.List) -> bool:
    return any(
        isinstance(part, ast.Call)
        and ("Callback" in last(part.func) or ".callbacks." in f".{meaning.script.dotted(part.func)}")
        for part in node.elts
    )


def _is_used(script: Script, name: str) -> bool:
    for node in ast.walk(script.tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and ast.unparse(node) == name:
            parent = script.parents[node]
            filled = isinstance(parent, ast.Attribute) and parent.attr in ("append", "extend", "insert")
            if not filled:
                return True
    return False


def shards(meaning: Meaning) -> Iterator[Finding]:
    """Each rank has its part of the data."""
    if meaning.calls(*_SHARERS) or meaning.elastic:
        return
    for call in meaning.fits:
        if last(call.func) != "train_on_batch":
            yield from _fit(meaning, call)
    if meaning.torch:
        yield from _loaders(meaning)


def _fit(meaning: Meaning, call: ast.Call) -> Iterator[Finding]:
    script, epochs = meaning.script, keyword(call, "epochs")
    data = [*call.args[:2], *(part.value for part in call.keywords if part.arg in ("x", "y"))]
    if any(map(script.by_rank, data)):
        return
    divided = script.mentions(epochs, lambda part: divides(part, script))
    if divided and epochs is not None:
        first = next(iter(script.named(epochs)), epochs)
        yield finding(
            "not-sharded",
            first,
            "the epochs are divided by the number of ranks, but each rank passes over all of the data: together they "
            "make as many passes as before",
            f"{_remedy([])}, and keep the epochs",
            call,
        )
    elif not script.by_size(keyword(call, "steps_per_epoch")) and any(_same(meaning, value) for value in data[:1]):
        yield finding(
            "not-sharded",
            call,
            "each rank passes over all of the data: N ranks make N times the passes of one",
            _remedy(data),
        )


def _remedy(data: list[ast.expr]) -> str:
    names = [ast.unparse(value) for value in data if isinstance(value, ast.Name)] or ["x"]
    parts = [
        f"{name}[{{hvd}}.rank() : len({name}) // {{hvd}}.size() * {{hvd}}.size() : {{hvd}}.size()]" for name in names
    ]
    return f"give each rank its part: `{', '.join(parts)}` (or use batchhvd.trainer.fit)"


def divides(node: ast.AST, script: Script) -> TypeGuard[ast.BinOp]:
    """Returns whether a node divides by the number of ranks."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv)) and script.by_size(node.right)


def _same(meaning: Meaning, node: ast.expr) -> bool:
    """Returns whether data are surely the same on all ranks."""
    found: list[bool] = []
    meaning.script.mentions(node, lambda part: _judge(meaning, part, found))
    return bool(found) and all(found)


def _judge(meaning: Meaning, part: ast.AST, found: list[bool]) -> bool:
    if isinstance(part, ast.Call):
        name = last(part.func)
        if name in _DRAWS:
            found.append(_seeded(meaning, part))
        elif name in _LOADERS:
            found.append(True)
    return False


def _seeded(meaning: Meaning, call: ast.Call) -> bool:
    """Returns whether a random array is drawn from a generator with a fixed seed."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call
    makers = [receiver, *meaning.script.named(receiver)]
    for maker in makers:
        if isinstance(maker, ast.Call) and last(maker.func) in ("default_rng", "RandomState"):
            return bool(arguments(maker)) and not meaning.script.by_rank(maker)
    seeds = meaning.calls("seed", "set_random_seed")
    return any(seed.args and not meaning.script.by_rank(seed.args[0]) for seed in seeds)


def _loaders(meaning: Meaning) -> Iterator[Finding]:
    """The loader of a PyTorch loop has a sampler that gives each rank its part."""
    for call in meaning.calls("DataLoader"):
        if any(map(meaning.script.by_rank, arguments(call))) or keyword(call, "sampler", "batch_sampler") is not None:
            continue
        if _feeds_training(meaning, call) and not meaning.calls("fit"):
            data = ast.unparse(call.args[0]) if call.args else "dataset"
            yield finding(
                "not-sharded",
                call,
                "each rank passes over all of the data: N ranks make N times the passes of one",
                f"pass `sampler=torch.utils.data.DistributedSampler({data}, {{hvd}}.size(), {{hvd}}.rank())`",
            )


def _feeds_training(meaning: Meaning, call: ast.Call) -> bool:
    """Returns whether a loop over a loader computes gradients."""
    for node in ast.walk(meaning.script.tree):
        if isinstance(node, ast.For) and meaning.script.mentions(node.iter, lambda part: part is call):
            inner = (part for part in ast.walk(node) if isinstance(part, ast.Call))
            if any(last(part.func) == "backward" for part in inner):
                return True
    return False
