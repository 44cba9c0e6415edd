"""The reference page is made from docstrings: it names what there is, and every public name."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import batchhvd

PAGE = (Path(batchhvd.__file__).parents[1] / "docs" / "reference.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^::: (\S+)\n(?:    options:\n      members: \[(.*?)\])?", PAGE, re.MULTILINE)


def test_every_name_on_the_page_exists() -> None:
    missing = [
        f"{module}.{name}"
        for module, names in BLOCKS
        for name in filter(None, names.split(", "))
        if not hasattr(import_module(module), name)
    ]
    assert BLOCKS and not missing


def test_every_public_name_is_on_the_page() -> None:
    shown = {name for _, names in BLOCKS for name in names.split(", ")}
    errors = {name for name in batchhvd.__all__ if name in vars(import_module("batchhvd.errors"))}
    assert not set(batchhvd.__all__) - shown - errors - {"__version__"}
