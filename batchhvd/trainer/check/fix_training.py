"""Fixes of what is trained and how: the optimizer, the first weights, each rank's part of the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from batchhvd.trainer.check.edit import Editor, TextEdit
from batchhvd.trainer.check.meaning import Meaning
from batchhvd.trainer.check.parsed_script import key, keyword, last
from batchhvd.trainer.check.sharing import divides

_NOT_ARRAYS = ("from_tensor_slices", "from_generator", "flow", "DataLoader", "image_dataset_from_directory", "iter")


def wrap_optimizer(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Puts Horovod's wrapper around the optimizers of ``compile`` or of a training loop."""
    if not isinstance(node, ast.Call):
        return
    if last(node.func) == "compile":
        given = [part.value for part in node.keywords if (part.arg or "").endswith(("optimizer", "opt", "optim"))]
        given = given or node.args[:1]
        for value in given:
            if not meaning.wrapped(value):
                yield from _wrapped(meaning, editor, value)
        if not given and _keras(meaning):
            yield editor.keyword(node, f"optimizer={_named(meaning, 'rmsprop')}")
    elif isinstance(node.func, ast.Attribute):
        for value in meaning.script.named(node.func.value):
            if isinstance(value, ast.Call) and meaning.is_optimizer_name(meaning.name(value.func)):
                yield from _wrapped(meaning, editor, value)


def _wrapped(meaning: Meaning, editor: Editor, value: ast.expr) -> Iterator[TextEdit]:
    alias = meaning.alias
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        if _keras(meaning):
            yield editor.replace(value, _named(meaning, value.value))
    elif meaning.torch_optimizer(value):
        weights = _weights(value)
        if weights:
            yield editor.wrap(
                value, f"{alias}.DistributedOptimizer(", f", named_parameters={weights}.named_parameters())"
            )
    elif meaning.optimizer(value):
        yield editor.wrap(value, f"{alias}.DistributedOptimizer(", ")")


def _keras(meaning: Meaning) -> str:
    """Returns the name of Keras in a script."""
    for name, origin in meaning.script.origins.items():
        if (origin or name) in ("keras", "tensorflow.keras"):
            return name
        if (origin or name) == "tensorflow":
            return f"{name}.keras"
    return ""


def _named(meaning: Meaning, name: str) -> str:
    return f'{meaning.alias}.DistributedOptimizer({_keras(meaning)}.optimizers.get("{name}"))'


def _weights(value: ast.expr) -> str:
    """Returns the model of an optimizer of PyTorch: ``model`` of ``SGD(model.parameters())``."""
    first = value.args[0] if isinstance(value, ast.Call) and value.args else None
    simple = isinstance(first, ast.Call) and last(first.func) == "parameters" and isinstance(first.func, ast.Attribute)
    return ast.unparse(first.func.value) if simple and isinstance(first.func, ast.Attribute) else ""  # type: ignore[union-attr]


# --- the first weights ------------------------------------------------------------------------------------------------


def pass_callbacks(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Passes a list of callbacks to ``fit``."""
    names = [
        name
        for name, values in meaning.script.values.items()
        for value in values
        if isinstance(value, ast.List) and "Callback" in ast.dump(value)
    ]
    if isinstance(node, ast.Call) and keyword(node, "callbacks") is None and names:
        yield editor.keyword(node, f"callbacks={names[0]}")


def broadcast(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Sends rank 0's weights to all ranks: a callback of ``fit``, or two calls after the optimizer of PyTorch."""
    if not isinstance(node, ast.Call):
        return
    if not meaning.torch and meaning.trains(node) and last(node.func) != "train_on_batch":
        yield _callback(meaning, editor, node)
    elif meaning.torch and isinstance(node.func, ast.Attribute):
        for value in meaning.script.named(node.func.value):
            statement = editor.statement(value)
            if isinstance(statement, ast.Assign) and statement.value is value and editor.alone(statement):
                yield from _after_optimizer(meaning, editor, statement, node.func.value)


def _callback(meaning: Meaning, editor: Editor, call: ast.Call) -> TextEdit:
    made, given = f"{meaning.alias}.callbacks.BroadcastGlobalVariablesCallback(0)", keyword(call, "callbacks")
    if given is None:
        return editor.keyword(call, f"callbacks=[{made}]")
    if isinstance(given, ast.List):
        place = editor.start(given) + 1
        return TextEdit(place, place, f"{made}, " if given.elts else made)
    return editor.wrap(given, f"[{made}, *", "]")


def _after_optimizer(
    meaning: Meaning, editor: Editor, statement: ast.Assign, optimizer: ast.expr
) -> Iterator[TextEdit]:
    value = statement.value
    inner = value.args[0] if isinstance(value, ast.Call) and last(value.func) == "DistributedOptimizer" else value
    weights = _weights(inner)
    if weights and key(statement.targets[0]) == key(optimizer):
        yield editor.after(
            statement,
            f"{meaning.alias}.broadcast_parameters({weights}.state_dict(), root_rank=0)",
            f"{meaning.alias}.broadcast_optimizer_state({key(optimizer)}, root_rank=0)",
        )


# --- the data ---------------------------------------------------------------------------------------------------------


def share_data(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Gives each rank its part of the arrays that ``fit`` takes, equally many on each; or a sampler to a loader."""
    if isinstance(node, ast.Call) and last(node.func) == "DataLoader":
        yield from _sampler(meaning, editor, node)
    elif isinstance(node, ast.Call) and meaning.trains(node):
        names = _arrays(meaning, node)
        for name in names:
            yield editor.replace(name, f"{ast.unparse(name)}{_part(meaning, ast.unparse(name))}")
        epochs = keyword(node, "epochs")
        if names and epochs is not None:
            yield from _undivided(meaning, editor, epochs)


def _part(meaning: Meaning, name: str) -> str:
    rank, size = f"{meaning.alias}.rank()", f"{meaning.alias}.size()"
    return f"[{rank} : len({name}) // {size} * {size} : {size}]"


def _arrays(meaning: Meaning, call: ast.Call) -> list[ast.Name]:
    """Returns the names of the arrays that a call trains on, directly or in a dataset; none if they may be others."""
    given = [*call.args[:2], *(part.value for part in call.keywords if part.arg in ("x", "y"))]
    sources = [part for value in given for part in _sources(meaning, value)]
    if sources:
        inner = sources[0].args[0] if len(sources) == 1 and sources[0].args else None
        given = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner] if inner is not None else []
    elif any(meaning.script.mentions(value, _is_stream) for value in given):
        return []
    names = [value for value in given if isinstance(value, ast.Name)]
    return names if names and len(names) == len(given) else []


def _sources(meaning: Meaning, value: ast.expr) -> list[ast.Call]:
    found: list[ast.Call] = []

    def note(part: ast.AST) -> bool:
        if isinstance(part, ast.Call) and last(part.func) == "from_tensor_slices" and part not in found:
            found.append(part)
        return False

    meaning.script.mentions(value, note)
    return found


def _is_stream(part: ast.AST) -> bool:
    return isinstance(part, ast.Call) and (last(part.func) in _NOT_ARRAYS or "Generator" in last(part.func))


def _undivided(meaning: Meaning, editor: Editor, epochs: ast.expr) -> Iterator[TextEdit]:
    """Takes the division by the number of ranks out of the number of epochs."""
    for value in (epochs, *meaning.script.named(epochs)):
        for part in ast.walk(value):
            if divides(part, meaning.script):
                yield editor.replace(part, editor.source(part.left))
                return


def _sampler(meaning: Meaning, editor: Editor, call: ast.Call) -> Iterator[TextEdit]:
    shuffle = next((part for part in call.keywords if part.arg == "shuffle"), None)
    known = call.args and isinstance(call.args[0], (ast.Name, ast.Attribute))
    if not known or meaning.script.origins.get("torch", "?") != "":
        return
    mixed = "" if shuffle is not None and ast.unparse(shuffle.value) == "True" else ", shuffle=False"
    alias = meaning.alias
    made = (
        f"sampler=torch.utils.data.DistributedSampler({editor.source(call.args[0])}, {alias}.size(), "
        f"{alias}.rank(){mixed})"
    )
    yield editor.replace(shuffle, made) if shuffle is not None else editor.keyword(call, made)


# --- names ------------------------------------------------------------------------------------------------------------


def rename(meaning: Meaning, editor: Editor, node: ast.AST | None, problem: str, remedy: str) -> Iterator[TextEdit]:
    """Writes the new name of what has only another name, and leaves out what has no effect."""
    new = re.fullmatch(r"write ([A-Za-z_]+)", remedy)
    if isinstance(node, ast.keyword):
        call = meaning.script.parents[node]
        if new and node.arg:
            yield TextEdit(editor.start(node), editor.start(node) + len(node.arg), new[1])
        elif remedy.startswith("leave it out") and isinstance(call, ast.Call):
            yield editor.without(call, node)
    elif isinstance(node, ast.Attribute) and new:
        yield TextEdit(editor.end(node) - len(node.attr), editor.end(node), new[1])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "variables" and not node.args:
            yield TextEdit(editor.end(node.func), editor.end(node), "")
        elif node.func.attr.endswith("_generator") and len(node.args) <= 1:
            end = editor.end(node.func)
            yield TextEdit(end - len("_generator"), end, "")
    elif isinstance(node, ast.ImportFrom):
        yield from _import(editor, node, remedy)


def _import(editor: Editor, node: ast.ImportFrom, remedy: str) -> Iterator[TextEdit]:
    module, names = node.module or "", [alias.name for alias in node.names]
    if names == ["np_utils"] and module.endswith("keras.utils"):
        yield editor.replace(
            node, f"from {module.rpartition('.')[0]} import utils as {node.names[0].asname or 'np_utils'}"
        )
    elif remedy == "import it from keras.layers" and ".layers." in module:
        new = ast.ImportFrom(module[: module.index(".layers.") + 7], node.names, 0)
        yield editor.replace(node, ast.unparse(new))
