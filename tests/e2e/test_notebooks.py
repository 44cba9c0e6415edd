"""Runs every notebook as a reader would, from the first cell to the last."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from batchhvd.wire import local_service

nbformat = pytest.importorskip("nbformat", reason="needs the extra `notebook`")
nbclient = pytest.importorskip("nbclient", reason="needs the extra `notebook`")

ROOT = Path(__file__).parents[2]
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.horovod
@pytest.mark.notebooks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_runs(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "ein Ordner é"
    work.mkdir()
    monkeypatch.setenv("BATCHHVD_ROOT", str(work / "root"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{Path('/usr/bin')}:{Path('/bin')}")
    content = nbformat.read(book, as_version=4)
    try:
        nbclient.NotebookClient(content, timeout=300, resources={"metadata": {"path": str(work)}}).execute()
    finally:
        local_service.stop(work / "root")  # it would wait an hour for work
        shutil.rmtree(work, ignore_errors=True)


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_is_stored_without_outputs(book: Path) -> None:
    for cell in nbformat.read(book, as_version=4).cells:
        assert not cell.get("outputs") and not cell.get("execution_count")


def test_the_first_notebook_is_the_tutorials_page() -> None:
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    blocks = [block.rstrip("\n") for block in re.findall(r"^(?<!-->\n)```python\n(.*?)^```$", page, re.M | re.S)]
    cells = [cell.source for cell in nbformat.read(ROOT / "notebooks/01-tutorial.ipynb", as_version=4).cells]
    shared = [block for block in blocks if "HOROVOD" not in block]
    assert shared
    assert [source for source in cells if source in shared] == shared
