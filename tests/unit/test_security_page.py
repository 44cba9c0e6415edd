"""docs/security.md: each sentence names a test that exists, and its table of limits is that of the service."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from pathlib import Path

import pytest

from batchhvd.service.http import limits

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(test_\w+)`", PAGE)


@functools.cache
def functions() -> set[str]:
    """Returns the names of all functions in the tests; read once, and only where it is asked for."""
    return {
        node.name
        for path in (REPOSITORY / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("name", sorted(set(NAMED)))
def test_a_test_that_the_page_names_exists(name: str) -> None:
    assert name in functions()


def statements() -> list[str]:
    """Returns the page's list items, each with the lines that belong to it, but for what is not protected."""
    text = PAGE.partition("## Not protected")[0]
    return [item for item in re.split(r"\n(?=- |\n|#)", text) if item.startswith("- ")]


def test_each_statement_names_a_test() -> None:
    assert len(statements()) > 20
    assert [item[:80] for item in statements() if "`test_" not in item] == []


def rows() -> dict[str, tuple[str, str]]:
    """Returns the value of each limit, as one reads it, and what the module says of it."""
    body = ast.parse(inspect.getsource(limits)).body
    found = {}
    for here, following in zip(body, body[1:], strict=False):
        if isinstance(here, ast.Assign) and isinstance(following, ast.Expr) and isinstance(here.targets[0], ast.Name):
            name = here.targets[0].id
            text = ast.literal_eval(following.value)
            found[name] = (shown(name, getattr(limits, name)), str(text).rstrip("."))
    return found


def shown(name: str, value: float) -> str:
    """Returns a limit as one reads it."""
    if name.endswith("_BYTES"):
        return f"{value / 1024:g} KiB" if value < 1 << 20 else f"{value / (1 << 20):g} MiB"
    if name.endswith("_SECONDS"):
        return f"{value:g} s" if value < 3600 else f"{value / 3600:g} h"
    return f"{value:.0%}".replace("%", " %") if value < 1 else f"{value:,}"


def table() -> dict[str, tuple[str, str]]:
    """Returns the page's table."""
    found = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            assert re.fullmatch(r"(`test_\w+` ?)+", cells[3]), line
            found[cells[0].strip("`")] = (cells[1], cells[2])
    return found


def test_the_table_has_every_limit_as_it_is() -> None:
    assert table() == rows()
    public = {name for name in vars(limits) if name.isupper() and not name.startswith("_")}
    assert public == set(table())
