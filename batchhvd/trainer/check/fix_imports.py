"""Fixes at the head of a script: Horovod's import, ``init``, and the choice of a GPU."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer import hvd
from batchhvd.trainer.check.edit import Editor, TextEdit
from batchhvd.trainer.check.meaning import Meaning

_FRAMEWORKS = ("keras", "tensorflow", "torch", "tf_keras")
_BINDINGS = ("horovod.keras", "horovod.tensorflow", "horovod.tensorflow.keras", "horovod.torch")


def _is_free(meaning: Meaning, name: str) -> bool:
    script = meaning.script
    return not any(name in known for known in (script.origins, script.values, script.functions, script.classes))


def _first_framework(meaning: Meaning) -> ast.stmt | None:
    """Returns the first import of a framework at the top of a script."""
    for node in meaning.script.tree.body:
        imports = [part for part in ast.walk(node) if isinstance(part, (ast.Import, ast.ImportFrom))]
        names = [name for part in imports for name in _modules(part)]
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and any(
            name.split(".")[0] in _FRAMEWORKS for name in names
        ):
            return node
    return None


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]


def add_horovod(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Imports and initializes Horovod."""
    first = _first_framework(meaning)
    if first is None or not _is_free(meaning, "hvd") or meaning.uses("lightning", "pytorch_lightning"):
        return
    if meaning.torch:
        imports = [one for one in meaning.script.tree.body if isinstance(one, (ast.Import, ast.ImportFrom))]
        yield editor.after(imports[-1], "import horovod.torch as hvd", "", "hvd.init()")
    else:
        yield editor.before(first, *_prepared(meaning, ", hvd"), "hvd.init()")


def _prepared(meaning: Meaning, more: str = "") -> list[str]:
    """Returns the lines that prepare the backend, under a name that is free."""
    if _is_free(meaning, "backend"):
        return [f"from batchhvd.trainer import backend{more}", "", "backend.prepare()"]
    return [f"from batchhvd.trainer import backend as trainer_backend{more}", "", "trainer_backend.prepare()"]


def change_binding(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Imports the trainer's binding instead of Horovod's own, if it has all names that are used."""
    imports = [
        one
        for one in ast.walk(meaning.script.tree)
        if isinstance(one, (ast.Import, ast.ImportFrom)) and _is_binding(one)
    ]
    lines = [_changed(one) for one in imports]
    if all(lines) and _names_used(meaning, imports) <= {*hvd.__all__, "keras"}:
        for one, line in zip(imports, lines, strict=True):
            yield editor.replace(one, line)


def _is_binding(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return (node.module or "") in (*_BINDINGS, *(f"{name}.callbacks" for name in _BINDINGS))
    return any(alias.name in _BINDINGS for alias in node.names)


def _changed(node: ast.Import | ast.ImportFrom) -> str:
    """Returns an import of the trainer's binding; "" if that is not a change of one line."""
    if isinstance(node, ast.Import):
        alias = node.names[0]
        return f"import batchhvd.trainer.hvd as {alias.asname}" if len(node.names) == 1 and alias.asname else ""
    if [alias.name for alias in node.names] == ["keras"]:
        return f"import batchhvd.trainer.hvd as {node.names[0].asname or 'keras'}"
    rest = ".callbacks" if (node.module or "").endswith(".callbacks") else ""
    names = ", ".join(alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in node.names)
    return f"from batchhvd.trainer.hvd{rest} import {names}"


def _names_used(meaning: Meaning, imports: list[ast.Import | ast.ImportFrom]) -> set[str]:
    """Returns the names of Horovod's own binding that a script uses."""
    used = {
        alias.name
        for node in imports
        if isinstance(node, ast.ImportFrom) and not (node.module or "").endswith(".callbacks")
        for alias in node.names
    }
    for node in ast.walk(meaning.script.tree):
        if isinstance(node, ast.Attribute) and meaning.script.dotted(node.value) in _BINDINGS:
            used.add(node.attr)
        if isinstance(node, ast.Attribute) and node.attr == "BestModelCheckpoint":
            used.add(node.attr)
    return used


def add_init(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Initializes Horovod after its import."""
    head = meaning.alias.split(".")[0]
    for one in meaning.script.tree.body:
        if isinstance(one, (ast.Import, ast.ImportFrom)):
            names = [alias.asname or alias.name.split(".")[0] for alias in one.names]
            if head in names and editor.alone(one):
                yield editor.after(one, f"{meaning.alias}.init()")
                return


def pin_gpu(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Gives each rank of a node a GPU of its own."""
    statement = editor.statement(node) if node is not None else None
    first = _first_framework(meaning)
    if not meaning.torch and first is not None:
        yield editor.before(first, *_prepared(meaning))
    elif (
        meaning.torch
        and statement is not None
        and editor.alone(statement)
        and meaning.script.origins.get("torch") == ""
    ):
        alias = meaning.alias
        yield editor.after(
            statement, "if torch.cuda.is_available():", f"    torch.cuda.set_device({alias}.local_rank())"
        )
