"""The command ``tutorial`` as a part of a longer program: what it leaves as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchhvd.cli import main as cli
from batchhvd.cli.flows import checkup, walkthrough
from batchhvd.errors import SpecError


def test_the_handler_of_sigterm_is_restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(walkthrough, "run", lambda *_, **__: 0)
    before = signal.getsignal(signal.SIGTERM)
    assert cli.run(["tutorial", "--root", str(tmp_path)]) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_options_of_the_engine_go_to_the_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[dict[str, Any]] = []

    def local(*_: object, **options: Any) -> None:
        started.append(options)
        raise SpecError("seen")

    monkeypatch.setattr(walkthrough, "check", lambda *_, **__: None)
    monkeypatch.setattr("batchhvd.local", local, raising=False)
    words = ["tutorial", "--root", str(tmp_path), "--engine", "slurm"]
    assert cli.run([*words, "--option", "partition=gpu", "--option", "account=a=b"]) == 2
    assert cli.run(words) == 2
    assert [one["engine_options"] for one in started] == [{"partition": "gpu", "account": "a=b"}, None]
    capsys.readouterr()
    assert cli.run([*words, "--option", "gpu"]) == 2
    assert "--option gpu is not of the form NAME=VALUE" in capsys.readouterr().err


def test_sigterm_interrupts_and_the_handler_is_restored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def terminated(*_: object, **__: object) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
        return 0

    monkeypatch.setattr(walkthrough, "run", terminated)
    before = signal.getsignal(signal.SIGTERM)
    assert cli.run(["tutorial", "--root", str(tmp_path)]) == cli.INTERRUPTED
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_runs_in_a_thread_that_may_not_handle_signals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(walkthrough, "run", lambda *_, **__: 7)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(cli.run(["tutorial", "--root", str(tmp_path)])))
    thread.start()
    thread.join()
    assert codes == [7]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--dataset", "digit"],
            2,
            "there is no data set 'digit'; give --dataset digits or cifar10, or an .npz file",
        ),
        (["--dataset", "none.npz"], 2, "the file none.npz does not exist"),
        (["--engine", "process"], 2, "there is no engine 'process'; give --engine processes or slurm"),
        (["--engine", "no.module:Class"], 2, "there is no engine 'no.module:Class'"),
        (["--engine", "slurm"], 1, "without sbatch"),
        (["--script", "none.py"], 2, "the script none.py does not exist"),
        (["--data", "nowhere"], 2, "the folder nowhere does not exist"),
    ],
)
def test_a_mistake_ends_it_before_anything_is_created(
    words: list[str], code: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(walkthrough, "_tutorial", _never)
    assert cli.run(["tutorial", "--root", str(tmp_path / "root"), *words]) == code
    assert said in capsys.readouterr().err and not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("missing", "fix"),
    [
        ("keras", "-m pip install 'batchhvd[trainer]'"),
        ("uvicorn", "-m pip install 'batchhvd[service]'"),
        ("horovod", "-m batchhvd.trainer.install"),
    ],
)
def test_a_machine_that_cannot_train_ends_it_with_the_command(
    missing: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(checkup, "_version", lambda name: "" if name == missing else "1.0")
    monkeypatch.setattr(checkup, "_can_import", lambda name: name != missing)
    monkeypatch.setattr(walkthrough, "_tutorial", _never)
    assert cli.run(["tutorial", "--root", str(tmp_path / "root")]) == cli.FAILED
    said = capsys.readouterr().err
    assert "this machine cannot train yet" in said and fix in said and not (tmp_path / "root").exists()
    script = tmp_path / "own.py"
    script.write_text("pass")
    with pytest.raises(AssertionError, match="it began"):  # it may need nothing of all this
        cli.run(["tutorial", "--root", str(tmp_path / "root"), "--script", str(script)])


def _never(*_: object) -> int:
    raise AssertionError("it began")


def test_the_names_are_those_of_the_engines_and_of_the_trainer() -> None:
    from batchhvd.engines import base
    from batchhvd.trainer import data

    assert set(base._ENGINES) == set(checkup.ENGINES) and data.DATASETS == walkthrough.DATASETS


def test_the_doctor_prints_each_line_at_once(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    seen: list[str] = []

    def checks() -> Iterator[checkup.CheckResult]:
        for number in range(3):
            seen.append(capsys.readouterr().out)
            yield checkup.CheckResult(f"check{number}", "ok", "fine")

    monkeypatch.setattr(checkup, "examine", checks)
    assert cli.run(["doctor"]) == 0
    assert [text.strip() for text in seen] == ["", "✓ check0         fine", "✓ check1         fine"]


def test_the_quick_doctor_starts_nothing(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(subprocess, "run", _never)
    cli.run(["doctor", "--quick", "-o", "json"])
    assert {"batchhvd", "client", "Horovod", "Slurm"} <= {item["what"] for item in json.loads(capsys.readouterr().out)}
