"""The Python with which Horovod is built, in an environment whose path has blanks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from batchhvd.trainer.install import wheel


def test_the_build_sees_no_blanks_in_the_path_of_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seen to fail without the link: the compiler was told to read a file named after what follows the blank.
    environment, scratch = tmp_path / "my environment", tmp_path / "scratch"
    (environment / "bin").mkdir(parents=True)
    scratch.mkdir()
    (environment / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setattr(sys, "executable", str(environment / "bin" / "python"))
    path = wheel._plain_python(scratch)
    assert " " not in path and Path(path).resolve() == Path(environment, "bin", "python").resolve()


def test_a_plain_path_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/opt/environment")
    monkeypatch.setattr(sys, "executable", "/opt/environment/bin/python")
    assert wheel._plain_python(tmp_path) == "/opt/environment/bin/python" and not list(tmp_path.iterdir())
