"""The page on the command line: what it shows is run, and what it names is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from batchhvd.cli import main as cli
from batchhvd.cli.flows import checkup

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
SCRIPT = """
import os, pathlib, sys
if os.environ["HOROVOD_RANK"] == "0":
    place = pathlib.Path(sys.argv[1].removeprefix("--dir=")) / "saved_models"
    place.mkdir()
    (place / "keras_cifar10_trained_model.h5").write_bytes(b"weights")
"""


def shown() -> list[list[str]]:
    text = re.sub(r"<!-- sample:[^>]*-->\n```console\n.*?```", "", PAGE.read_text(encoding="utf-8"), flags=re.S)
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.S)
    return [shlex.split(line[2:]) for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_every_command_of_the_page_runs(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in re.findall(r"(\w+)=(\S+)", re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.S)[0]):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkup, "examine", lambda: [checkup.CheckResult("x", "ok", "1")])  # trains with each framework
    Path("cifar_cnn_distributed.py").write_text(SCRIPT, encoding="utf-8")
    (job,) = re.findall(r"<!-- file: job.json -->\n```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    Path("job.json").write_text(job, encoding="utf-8")
    commands = shown()
    assert len(commands) > 15
    for words in commands:
        assert words[0] == "batchhvd"
        assert cli.run(words[1:]) == 0, (words, capsys.readouterr())
    assert Path("keras_cifar10_trained_model.h5").read_bytes() == b"weights"


def test_the_page_names_every_exit_code_and_every_variable() -> None:
    text = PAGE.read_text(encoding="utf-8")
    codes = {cli.FAILED, cli.WRONG, cli.NOT_FOUND, cli.UNAVAILABLE, cli.TOO_LATE, cli.INTERRUPTED, 0}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.M)} == codes
    variables = {
        name for command in _all(cli.main_group) for option in command.params for name in _names(option.envvar)
    }
    assert variables
    assert all(name in text for name in variables)


def _all(command: Any) -> list[Any]:
    return [command, *(found for inner in getattr(command, "commands", {}).values() for found in _all(inner))]


def _names(envvar: Any) -> list[str]:
    return [envvar] if isinstance(envvar, str) else list(envvar or [])


def test_init_writes_a_project_whose_readme_runs(
    service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    monkeypatch.chdir(tmp_path)
    assert cli.run(["init", "mine é"]) == 0
    page = (PAGE.parent / "own-model.md").read_text(encoding="utf-8")
    for name in ("train.py", "job.json"):
        assert f"\n{Path('mine é', name).read_text(encoding='utf-8')}```" in page, (
            f"docs/own-model.md shows another {name}"
        )
    assert cli.run(["init", "mine é"]) == cli.WRONG
    assert "train.py" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "mine é")
    Path("train.py").write_text(
        "import os, pathlib\n"
        "if os.environ['HOROVOD_RANK'] == '0':\n"
        "    pathlib.Path(os.environ['AZ_BATCHAI_OUTPUT_RESULT'], 'model.keras').write_bytes(b'weights')\n"
    )
    blocks = re.findall(r"```console\n(.*?)```", Path("README.md").read_text(encoding="utf-8"), re.S)
    lines = [shlex.split(line[2:]) for line in blocks[1].splitlines()]
    for assignment in lines.pop(0)[1:]:
        monkeypatch.setenv(*assignment.split("=", 1))
    for words in lines:
        assert words[0] == "batchhvd"
        assert cli.run(words[1:]) == 0, (words, capsys.readouterr())
    assert [path.read_bytes() for path in Path().rglob("model.keras")] == [b"weights"]
