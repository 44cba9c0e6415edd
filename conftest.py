"""Lets Ctrl-C be tested everywhere, and runs what README.md and docs/ show.

Python blocks run in one namespace a page, console blocks in a shell.

A comment in the line before a block changes what is done with it, and is not seen by a reader:

    <!-- sample: REASON -->    the block is not run
    <!-- file: NAME -->        the block is written to a file of that name in the page's working directory
    <!-- quick: OLD => NEW --> `make test` runs the block with NEW for OLD, `make test-all` as it is printed

Each page has a working directory, a local service's root and a ``batchhvd`` command of its own. docs/cli.md is run by
tests/wire/test_cli_docs.py, which also compares its output; the translations have the English page's blocks.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.region import Lexeme

from batchhvd.wire import configuration
from tests.support import tiers


def _without_own_settings() -> None:
    """Hides what a developer has set for himself: it would change what tests find.

    That is ``batchhvd.toml``, the variables that set the same, and git's own list of what to ignore. What others have
    in the same folder stays, such as pip's file.
    """
    for name in (*configuration.VARIABLES.values(), "BATCHHVD_TOKEN", "BATCHHVD_OUTPUT", "BATCHHVD_PROGRESS"):
        os.environ.pop(name, None)
    os.environ["GIT_CONFIG_GLOBAL"] = os.devnull
    theirs = configuration.user_file().parent
    hidden = tempfile.TemporaryDirectory(prefix="batchhvd tests ")
    atexit.register(hidden.cleanup)
    for path in theirs.iterdir() if theirs.is_dir() else ():
        if path.name != configuration.user_file().name:
            Path(hidden.name, path.name).symlink_to(path.resolve())
    os.environ["XDG_CONFIG_HOME"] = hidden.name


_without_own_settings()
# The jobs of most tests and pages name images of 2018 that no test may pull; the tests of images choose an engine.
os.environ["BATCHHVD_CONTAINERS"] = "off"
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>sample|file|quick): (?P<what>[^\n]+?) -->\n)?"
    r"```(?P<language>python|json|console)\b[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_python = PythonEvaluator()


def _console(example: Example) -> None:
    """Runs each line that begins with ``$ `` in a shell; it must end well."""
    for line in example.parsed.splitlines():
        if line.startswith("$ "):
            done = subprocess.run(["bash", "-c", line[2:]], capture_output=True, text=True)
            if done.returncode:
                raise AssertionError(f"{line}\nended with {done.returncode}\n{done.stdout}{done.stderr}")


def _written(name: str) -> Any:
    def write(example: Example) -> None:
        Path(name).write_text(example.parsed, encoding="utf-8")

    return write


def _quick(change: str) -> Any:
    old, _, new = change.partition(" => ")

    def evaluate(example: Example) -> Any:
        assert old in example.parsed, f"the block has no {old!r}, which its mark replaces"
        example.parsed = Lexeme(example.parsed.replace(old, new), example.parsed.offset, example.parsed.line_offset)
        return _python(example)

    return _python if tiers.ALL else evaluate


def _blocks(document: Document) -> Iterator[Region]:
    for match in _BLOCK.finditer(document.text):
        if match["mark"] == "sample" or (match["language"] == "json" and match["mark"] != "file"):
            continue
        evaluate = {"python": _python, "console": _console}.get(match["language"])
        if match["mark"] == "file":
            evaluate = _written(match["what"])
        elif match["mark"] == "quick":
            evaluate = _quick(match["what"])
        lines = match.string.count("\n", match.start(), match.start("body")) - 1  # for tracebacks
        yield Region(match.start(), match.end(), Lexeme(match["body"], match.start("body"), lines), evaluate)


def _enter(namespace: dict[str, Any]) -> None:
    folder = tempfile.mkdtemp(prefix="batchhvd docs é ")
    namespace["_before"] = (os.getcwd(), dict(os.environ), folder)
    os.environ["BATCHHVD_ROOT"] = os.path.join(folder, "root")
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    work = Path(folder, "work")
    work.mkdir()
    os.chdir(work)


def _leave(namespace: dict[str, Any]) -> None:
    here, environment, folder = namespace["_before"]
    service = Path(folder, "root", "service.json")
    if service.exists():
        with suppress(ProcessLookupError):  # a page may have stopped it
            os.kill(json.loads(service.read_text())["pid"], signal.SIGTERM)
    os.chdir(here)
    os.environ.clear()
    os.environ.update(environment)
    shutil.rmtree(folder, ignore_errors=True)


# While one works, fewer examples are enough: make unit takes these. All other runs take Hypothesis's own number.
hypothesis.settings.register_profile("quick", max_examples=20, deadline=None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background of a shell ignores Ctrl-C, and so would every program that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tiers.leave(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if names := [one.nodeid for one in skipped if isinstance(one.longrepr, tuple) and tiers.REASON in one.longrepr[2]]:
        terminalreporter.write_line(tiers.left(names))


pytest_collect_file = Sybil(
    parsers=[_blocks],
    patterns=["README.md", "docs/*.md"],
    excludes=["docs/tutorial.*.md", "docs/cli.md"],
    setup=_enter,
    teardown=_leave,
).pytest()
