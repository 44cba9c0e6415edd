"""The house stays habitable: folders, modules and functions of a size that people read, and one name for one thing."""

from __future__ import annotations

import ast
import functools
import io
import statistics
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

import batchhvd

PACKAGE = Path(batchhvd.__file__).parent
FILES = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Returns the package's modules, parsed once, and only where they are asked for."""
    return {name: ast.parse(text) for name, text in FILES.items()}


# Public classes of one name, with the reason; at most two.
TWICE: dict[str, str] = {}


def test_no_folder_is_crowded() -> None:
    folders = Counter(name.rpartition("/")[0] for name in FILES)
    assert not {folder: count for folder, count in folders.items() if count > 20}


def test_no_module_is_long() -> None:
    assert not {name: text.count("\n") for name, text in FILES.items() if text.count("\n") > 400}


def lengths() -> list[int]:
    """Returns the lines of each function, without its head and docstring."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for tree in trees().values():
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                found.append((body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0)
    return sorted(found)


def test_functions_are_short() -> None:
    found = lengths()
    assert statistics.median(found) <= 8
    assert found[int(0.9 * len(found))] <= 20


def test_one_name_means_one_class() -> None:
    places = defaultdict(list)
    for name, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert {name for name, where in places.items() if len(where) > 1} == set(TWICE)
    assert len(TWICE) <= 2


def test_types_say_something() -> None:
    """``Any`` at most ten times in a thousand lines, but for ``wire/``, where the Azure packages say no more."""
    names, lines = 0, 0
    for name, text in FILES.items():
        if not name.startswith("wire/"):
            tokens = tokenize.generate_tokens(io.StringIO(text).readline)
            names += sum(token.type == tokenize.NAME and token.string == "Any" for token in tokens)
            lines += text.count("\n")
    assert 1000 * names / lines <= 10
