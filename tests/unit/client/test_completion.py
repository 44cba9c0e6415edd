"""Names complete on TAB, from a file that every command adds to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from batchhvd.cli import main as cli
from batchhvd.cli.frame import names


def offered(*words: str, start: str = "") -> list[str]:
    """Returns what the shell is offered for the next word."""
    complete = ShellComplete(cli.main_group, {}, "batchhvd", "_BATCHHVD_COMPLETE")
    return [item.value for item in complete.get_completions(list(words), start)]


def met(kind: str, *found: str) -> None:
    with cli.main_group.make_context("batchhvd", ["job"]):
        names.note(kind, found)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BATCHHVD_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_names_that_commands_have_met_are_offered_the_latest_first() -> None:
    met("job", "cifar", "digits")
    met("job", "cifar")
    met("cluster", "nc6")
    assert offered("job", "logs") == ["cifar", "digits"]
    assert offered("job", "show", start="di") == ["digits"]
    assert offered("job", "submit", "job.json", "-c") == ["nc6"]
    assert offered("cluster", "resize") == offered("cluster", "delete") == ["nc6"]
    assert offered("share", "files") == []


def test_each_service_has_names_of_its_own_and_a_damaged_file_is_no_trouble(root: Path) -> None:
    met("job", "here")
    assert offered("--root", str(root / "other"), "job", "logs") == []
    assert offered("--endpoint", "http://127.0.0.1:1", "job", "logs") == []
    for content in ("", "[1]", '{"job": 3}', '{"job": ["here"]'):
        (root / "root" / "names.json").write_text(content)
        assert offered("job", "logs") == []
    met("job", "again")
    assert offered("job", "logs") == ["again"]


def test_names_that_are_gone_are_forgotten_and_a_folder_that_cannot_be_written_is_no_trouble(root: Path) -> None:
    met("share", "a", "b")
    with cli.main_group.make_context("batchhvd", ["job"]):
        names.forget("share", "a")
    assert offered("share", "download") == ["b"]
    (root / "root" / "names.json").unlink()
    (root / "root").rmdir()
    (root / "root").write_text("a file")
    met("share", "c")
    assert offered("share", "download") == []


SLOW = {
    "attr",
    "attrs",
    "azure",
    "rich",
    "httpx",
    "asyncio",
    "concurrent",
    "subprocess",
    "logging",
    "difflib",
    "tempfile",
}


def test_a_shell_waits_for_nothing_that_completion_does_not_need(root: Path) -> None:
    met("job", "cifar")
    code = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "from batchhvd.cli.main import main; main()"
    )
    asked = {"_BATCHHVD_COMPLETE": "bash_complete", "COMP_WORDS": "batchhvd job logs ", "COMP_CWORD": "3"}
    command = [sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "plain,cifar\n"
    loaded = json.loads(done.stderr)
    assert not SLOW & {name.partition(".")[0] for name in loaded}
    assert "batchhvd.cli.job" in loaded and "batchhvd.cli.share" not in loaded


def test_the_table_of_commands_names_each_as_it_is_called() -> None:
    assert {name: command.name for name, command in cli.main_group.commands.items()} == {
        name: name for name in cli.main_group.list_commands(cli.main_group.make_context("batchhvd", ["job"]))
    }
    assert offered(start="com") == ["compare", "completion"]
    assert "job" in offered() and "--root" in offered(start="--")
