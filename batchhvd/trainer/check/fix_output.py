"""Fixes of what ranks write, print and download at the same time."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from batchhvd.trainer.check.edit import Editor, TextEdit
from batchhvd.trainer.check.finding import Finding
from batchhvd.trainer.check.meaning import Meaning
from batchhvd.trainer.check.parsed_script import keyword, last


def guard(meaning: Meaning, editor: Editor, found: list[Finding]) -> Iterator[TextEdit]:
    """Puts the statements of findings under a test for rank 0, or changes the call, if that is enough."""
    test, statements = f"{meaning.alias}.rank() == 0", list[ast.stmt]()
    for node in (node for finding in found for node in finding.nodes):
        if not isinstance(node, ast.Call):
            continue
        statement = editor.statement(node)
        if last(node.func) in ("makedirs", "mkdir") and meaning.name(node.func) != "os.mkdir":
            yield editor.keyword(node, "exist_ok=True")
        elif _in_list(meaning, node):
            yield editor.wrap(node, "*([", f"] if {test} else [])")
        elif statement is not None and _may_be_guarded(meaning, editor, statement, node):
            statements.append(statement)
    yield from editor.guarded(statements, test)


def _in_list(meaning: Meaning, node: ast.Call) -> bool:
    """Returns whether a call is an element of a list of callbacks."""
    return isinstance(meaning.script.parents[node], ast.List) and ".callbacks." in f".{meaning.name(node.func)}"


def _may_be_guarded(meaning: Meaning, editor: Editor, statement: ast.stmt, node: ast.Call) -> bool:
    """Returns whether the other ranks can go without a statement: it gives them no name, and no rank waits in it."""
    if not editor.alone(statement) or meaning.communicates(statement):
        return False
    if isinstance(statement, ast.Expr):
        return not any(isinstance(part, (ast.Lambda, ast.Yield, ast.Await)) for part in ast.walk(statement))
    if not isinstance(statement, ast.With) or node not in [item.context_expr for item in statement.items]:
        return False
    body = [part for one in statement.body for part in ast.walk(one)]
    leaves = (ast.Return, ast.Break, ast.Continue)
    return not any(isinstance(part, leaves) or _sets_name(part) for part in body)


def _sets_name(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)


def quiet(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Lets only rank 0 show a progress bar."""
    test = f"if {meaning.alias}.rank() == 0 else 0"
    if isinstance(node, ast.Call):
        verbose = keyword(node, "verbose")
        if verbose is None:
            yield editor.keyword(node, f"verbose=1 {test}")
        else:
            yield editor.wrap(verbose, "", f" {test}")


def download_first(meaning: Meaning, editor: Editor, node: ast.AST | None) -> Iterator[TextEdit]:
    """Lets local rank 0 of each node download before the others look for the file."""
    statement = editor.statement(node) if node is not None else None
    simple = isinstance(statement, (ast.Assign, ast.Expr)) and editor.alone(statement)
    if node is not None and statement is not None and simple and "\n" not in editor.source(node):
        alias = meaning.alias
        yield editor.before(
            statement, f"if {alias}.local_rank() == 0:", f"    {editor.source(node)}", f"{alias}.barrier()"
        )
