"""Rules about what the ranks exchange: averaged gradients, the first weights, a rate for all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer.check.finding import Finding, finding
from batchhvd.trainer.check.joining import broken
from batchhvd.trainer.check.meaning import Meaning
from batchhvd.trainer.check.parsed_script import keyword, last

_BROADCASTS = (
    "BroadcastGlobalVariablesCallback",
    "BroadcastGlobalVariablesHook",
    "broadcast_variables",
    "broadcast_model",
    "broadcast_parameters",
    "broadcast_global_variables",
    "restore",
    "load_weights",
    "load_state_dict",
)
_REDUCTIONS = (
    "allreduce",
    "grouped_allreduce",
    "allreduce_",
    "DistributedGradientTape",
    "PartialDistributedGradientTape",
)
_ADJUSTING = ("LearningRateWarmupCallback", "LearningRateScheduleCallback", "Warmup", "rate", "scaling")


def scales(meaning: Meaning) -> Iterator[Finding]:
    """The learning rate grows with the number of ranks, or the script adjusts it in another way."""
    by_fit = any(keyword(call, "scale_rate") is not None for call in meaning.script.calls)
    if by_fit or meaning.calls(*_ADJUSTING) or not _trains(meaning) or _divides_batch(meaning):
        return
    for call in meaning.optimizers:
        torch = meaning.name(call.func).startswith("torch.")
        rate = keyword(call, "learning_rate", "lr") or next(iter(call.args[1:2] if torch else call.args[:1]), None)
        if rate is None or _constant(meaning, rate):
            yield finding(
                "rate-not-scaled",
                call,
                "the learning rate does not depend on the number of ranks, although their common batch grows with it",
                "multiply the rate by `{hvd}.size()`, and warm up"
                if torch
                else "multiply it: `batchhvd.trainer.schedule.LINEAR.rate(rate, {hvd}.size())`, with warm-up",
            )


def _trains(meaning: Meaning) -> bool:
    return bool(meaning.fits or meaning.steps or meaning.uses_ours("fit", "train"))


def _divides_batch(meaning: Meaning) -> bool:
    """Returns whether the common batch stays the same, because each rank's batch is a part of it."""
    sizes = [value for call in meaning.script.calls if (value := keyword(call, "batch_size")) is not None]
    sizes += [call.args[0] for call in meaning.calls("batch") if call.args]
    return any(map(meaning.script.by_size, sizes))


def _constant(meaning: Meaning, node: ast.expr) -> bool:
    """Returns whether a value is the same for any number of ranks."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, (ast.Name, ast.Attribute)):
        values = meaning.script.named(node)
        return bool(values) and all(isinstance(value, ast.Constant) or _schedule(meaning, value) for value in values)
    return _schedule(meaning, node)


def _schedule(meaning: Meaning, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not meaning.name(node.func).startswith("keras.optimizers.schedules."):
        return False
    return all(_constant(meaning, part) for part in (*node.args, *(part.value for part in node.keywords)))


def wraps(meaning: Meaning) -> Iterator[Finding]:
    """The gradients are averaged, by a wrapper that works."""
    for call in meaning.script.calls:
        if broken(meaning, call):
            yield finding(
                "broken-wrapper",
                call,
                f"{meaning.script.dotted(call.func)} exchanges no gradient on Keras 3: every rank trains alone, "
                "without an error",
                "`import batchhvd.trainer.hvd as {hvd}` instead",
            )
        elif last(call.func) == "DistributedOptimizer" and _of_torch(meaning, call):
            yield finding(
                "broken-binding",
                call,
                "horovod.torch.DistributedOptimizer takes optimizers of PyTorch, not of Keras",
                "`import batchhvd.trainer.hvd as {hvd}` instead",
            )
    if not meaning.uses_ours("fit", "train"):
        yield from _compiled(meaning)
        yield from _stepped(meaning)


def _of_torch(meaning: Meaning, call: ast.Call) -> bool:
    inner = call.args[0] if call.args else keyword(call, "optimizer")
    return meaning.script.dotted(call.func).startswith("horovod.torch") and meaning.optimizer(inner)


def _compiled(meaning: Meaning) -> Iterator[Finding]:
    """The optimizers that ``compile`` is given are wrapped."""
    own_steps = bool(meaning.calls(*_REDUCTIONS))
    for call in meaning.script.calls:
        if not _compiles(meaning, call) or (own_steps and not meaning.fits):
            continue
        given = [part.value for part in call.keywords if (part.arg or "").endswith(("optimizer", "opt", "optim"))]
        given = given or call.args[:1]
        plain = [value for value in given if not meaning.wrapped(value) and _known(meaning, value)]
        if plain or (not given and not any(part.arg is None for part in call.keywords)):
            yield finding(
                "not-wrapped",
                call,
                "the model is compiled with an optimizer that does not average gradients",
                f"`optimizer = {{hvd}}.DistributedOptimizer({_shown(plain)})`",
            )


def _shown(values: list[ast.expr]) -> str:
    value = values[0] if values else ast.Constant("rmsprop")
    return f"keras.optimizers.get({value.value!r})" if isinstance(value, ast.Constant) else ast.unparse(value)


def _known(meaning: Meaning, value: ast.expr) -> bool:
    """Returns whether an expression is surely an optimizer: by its making, or as a name that Keras knows."""
    if meaning.optimizer(value) or isinstance(value, ast.Constant):
        return True
    values = meaning.script.named(value)
    constants = bool(values) and all(isinstance(one, ast.Constant) for one in values)
    return constants or not (meaning.made(value) or meaning.calls("DistributedOptimizer"))


def _compiles(meaning: Meaning, call: ast.Call) -> bool:
    """Returns whether a call compiles a model that is trained, not a regular expression or a function."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "compile" or not meaning.keras:
        return False
    if isinstance(call.func.value, ast.Call) and last(call.func.value.func) == "super":
        return False
    named = keyword(call, "optimizer", "loss", "metrics") is not None or meaning.model(call.func.value)
    return (named or len(call.args) > 1) and bool(meaning.fits or meaning.calls("fit", "train_on_batch"))


def _stepped(meaning: Meaning) -> Iterator[Finding]:
    """The optimizers of a training loop are wrapped, or its gradients are averaged."""
    if meaning.calls(*_REDUCTIONS):
        return
    for call in meaning.steps:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else call
        if not meaning.wrapped(receiver) and not meaning.inside(call, "keras.Model", "keras.Sequential"):
            yield finding(
                "not-wrapped",
                call,
                "the optimizer applies the gradients of one rank",
                f"`{ast.unparse(receiver)} = {{hvd}}.DistributedOptimizer({ast.unparse(receiver)})`",
            )


def broadcasts(meaning: Meaning) -> Iterator[Finding]:
    """All ranks start with the weights of one rank."""
    trained = sorted([*meaning.fits, *meaning.steps], key=lambda call: call.lineno)
    if not trained or meaning.calls(*_BROADCASTS) or meaning.elastic or _seeded(meaning):
        return
    if any("load_model" in name for call in meaning.fits for name in meaning.made(call.func)):
        return
    call = meaning.fits[0] if meaning.fits else trained[0]
    yield finding("no-broadcast", call, "nothing gives all ranks the same first weights", _remedy(meaning, call))


def _remedy(meaning: Meaning, call: ast.Call) -> str:
    if meaning.fits:
        return "pass `callbacks=[{hvd}.callbacks.BroadcastGlobalVariablesCallback(0)]` to fit"
    receiver = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else "optimizer"
    if meaning.torch:
        return (
            "`{hvd}.broadcast_parameters(model.state_dict(), root_rank=0); "
            f"{{hvd}}.broadcast_optimizer_state({receiver}, root_rank=0)`"
        )
    return (
        f"`{receiver}.build(model.trainable_variables); "
        f"{{hvd}}.broadcast_variables([*model.variables, *{receiver}.variables], root_rank=0)`"
    )


def _seeded(meaning: Meaning) -> bool:
    """Returns whether all ranks draw the same first weights."""
    seeds = [call for call in meaning.calls("set_random_seed") if meaning.name(call.func).startswith("keras.")]
    if meaning.torch:
        seeds += [
            call for call in meaning.calls("manual_seed", "seed_everything") if "cuda" not in ast.unparse(call.func)
        ]
    return any(call.args and not meaning.script.by_rank(call.args[0]) for call in seeds)
