"""Where preparations would run, as the service says it before there is a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchhvd.engines import preparation_place
from batchhvd.engines.preparation_place import PreparationAdvice


@pytest.mark.parametrize(
    ("asked", "here", "begins"),
    [
        ("skip", True, "skipped, because the service was started with --prepare skip"),
        ("host", True, "on the machine itself"),
        ("overlay", False, "on each node"),
    ],
)
def test_what_the_service_was_told_decides(tmp_path: Path, asked: str, here: bool, begins: str) -> None:
    assert PreparationAdvice(asked, tmp_path, here).text.startswith(begins)


def test_a_machine_that_allows_no_view_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node.py").write_text("print('unshare: Operation not permitted')")
    monkeypatch.setattr(preparation_place, "FOLDER", tmp_path / "node.py")
    advice = PreparationAdvice("overlay", tmp_path / "layers", here=True)
    assert advice.text == "skipped: no copy-on-write view is possible here: unshare: Operation not permitted"
    (tmp_path / "node.py").write_text("raise SystemExit(3)")
    assert "skipped" in PreparationAdvice("overlay", tmp_path / "layers", here=True).text
