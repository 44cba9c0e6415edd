"""Every command and every name of ours that a page shows exists, also in the blocks that no test runs."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import batchhvd
from batchhvd.cli import main as cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>sample|file|quick)(?:: (?P<why>[^\n]*?))? -->\n)?"
    r"```(?P<language>\w+)\b[^\n]*\n(?P<body>.*?)^```$",
    re.M | re.S,
)
_INLINE = re.compile(r"`(batchhvd [^`]+)`")
_ENDS = {"|", "||", "&&", ";", "--", "or:", ">", "2>", "&"}


def commands(text: str) -> Iterator[str]:
    """Yields the command lines of a page that begin with ``batchhvd``."""
    prose = text
    for block in _BLOCK.finditer(text):
        prose = prose.replace(block[0], "")
        if block["language"] in ("console", "bash", "text", "sh"):
            lines = (line.strip().removeprefix("$ ") for line in block["body"].splitlines())
            yield from (line for line in lines if line.startswith("batchhvd ") and ": " not in line.split("#")[0][:11])
    yield from (found[1] for found in _INLINE.finditer(prose))


def wrong(line: str) -> str:
    """Returns what is wrong with a command line, "" if nothing is."""
    words = iter(shlex.split(line, comments=True)[1:])
    command: click.Command = cli.main_group
    for word in words:
        if word in _ENDS:
            break
        if word.startswith("-") and word not in ("-", "-h", "--help"):
            name, has_value, _ = word.partition("=")
            known = {one: option for option in command.params for one in (*option.opts, *option.secondary_opts)}
            if name in known:
                is_flag = getattr(known[name], "is_flag", False) or has_value
                None if is_flag else next(words, None)
            elif not command.context_settings.get("ignore_unknown_options"):
                return f"{command.name} has no option {name}"
        elif isinstance(command, click.Group) and re.fullmatch("[a-z.-]+", word):
            inner = command.get_command(click.Context(command), word if "." not in word else "run")
            if inner is None:
                return f"{command.name} has no command {word}"
            command = inner
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_a_page_names_exists_with_its_options(page: Path) -> None:
    lines = set(commands(page.read_text(encoding="utf-8")))
    assert not {line: said for line in lines if (said := wrong(line))}


def test_a_command_that_does_not_exist_is_found() -> None:
    assert wrong("batchhvd job topp x") == "job has no command topp"
    assert wrong("batchhvd --root r job logs x --folow") == "logs has no option --folow"
    assert wrong("batchhvd run x.py --nodes 4 -- --rate 0.1") == wrong("batchhvd cluster exec c -- ls -l") == ""
    assert len({line for page in PAGES for line in commands(page.read_text(encoding="utf-8"))}) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_that_no_test_runs_have_a_reason_and_names_that_exist(page: Path) -> None:
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["mark"] == "sample":
            assert block["why"], f"{block[0][:80]}: say why it is not run"
        if block["mark"] == "sample" and block["language"] == "python":
            _check_names(ast.parse(block["body"]))


def _check_names(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "batchhvd":
            pytest.importorskip("keras") if "trainer" in str(node.module) else None
            module = importlib.import_module(str(node.module))
            for one in node.names:
                if not hasattr(module, one.name):
                    importlib.import_module(f"{node.module}.{one.name}")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "batchhvd":
            assert hasattr(batchhvd, node.attr) or importlib.import_module(f"batchhvd.{node.attr}"), node.attr
