"""Runs every notebook as a reader would, from the first cell to the last; ``make notebooks WRITE=1`` keeps the outputs.

The notebooks are stored with their outputs, so that a reader on a code host sees what each cell does.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from batchhvd.wire import local_service

nbformat = pytest.importorskip("nbformat", reason="needs the extra `notebook`")
nbclient = pytest.importorskip("nbclient", reason="needs the extra `notebook`")

ROOT = Path(__file__).parents[2]
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
_WRITING = os.environ.get("BATCHHVD_WRITE_NOTEBOOKS") == "1"
_NOISE = re.compile(r"oneDNN|cuInit|cudart_stub|absl::|0x[0-9a-f]{6}|/tmp/|/root/|/home/|seconds=\d+\.\d{6}")
_LARGEST = 100_000  # characters of a stored notebook


# Wherever the checkout and its environment lie: tracebacks show paths in both.
_HERE = "|".join(re.escape(str(place)) for place in (ROOT, sys.prefix))


@pytest.mark.horovod
@pytest.mark.notebooks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_runs(book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "ein Ordner é"
    work.mkdir()
    monkeypatch.setenv("BATCHHVD_ROOT", str(work / "root"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{Path('/usr/bin')}:{Path('/bin')}")
    content = nbformat.read(book, as_version=4)
    try:
        nbclient.NotebookClient(content, timeout=300, resources={"metadata": {"path": str(work)}}).execute()
    finally:
        local_service.stop(work / "root")  # it would wait an hour for work
    left = {path.name for path in tmp_path.iterdir()} - {work.name}
    shutil.rmtree(work, ignore_errors=True)
    assert not left, "temporary folders of the notebook are still there"
    cleaned(content, tmp_path)
    assert faults(content) == []
    if _WRITING:
        nbformat.write(content, book)


def cleaned(content: Any, folder: Path) -> None:
    """Takes out of a notebook what differs from run to run, and joins what was printed piece by piece."""
    content.metadata["language_info"] = {"name": "python"}
    for cell in content.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                _masked(output, re.compile(rf"{re.escape(str(folder))}/[^/\s'\"<]+|/tmp/batchhvd-horovod-\w+|{_HERE}"))


def _masked(output: Any, place: re.Pattern[str]) -> None:
    """Shortens the temporary folders of this run."""
    if "text" in output:
        output.text = place.sub("…", output.text)
    for kind, shown in output.get("data", {}).items():
        if isinstance(shown, str) and kind.startswith("text/"):
            output.data[kind] = place.sub("…", shown)


def _joined(outputs: list[Any]) -> list[Any]:
    found: list[Any] = []
    for output in outputs:
        if found and output.output_type == "stream" and found[-1].get("name") == output.name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def faults(content: Any) -> list[str]:
    """Returns what a reader of a stored notebook should not see."""
    found = []
    for cell in content.cells:
        for output in cell.get("outputs", ()):
            shown = str(output.get("text") or {k: v for k, v in output.get("data", {}).items() if k != "image/png"})
            if output.output_type == "error" or output.get("name") == "stderr":
                found.append(f"{cell.id}: {shown or output.get('ename')}")
            if noise := _NOISE.search(shown):
                found.append(f"{cell.id}: {shown[max(0, noise.start() - 60) : noise.end() + 60]}")
    return found


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_a_notebook_is_stored_with_its_outputs_and_says_what_it_needs(book: Path) -> None:
    content = nbformat.read(book, as_version=4)
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(cell.outputs for cell in code)
    assert faults(content) == []
    assert len(book.read_text(encoding="utf-8")) < _LARGEST
    assert "[service,trainer,notebook]" in content.cells[0].source


def test_the_first_notebook_is_the_tutorials_page() -> None:
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    blocks = [block.rstrip("\n") for block in re.findall(r"^(?<!-->\n)```python\n(.*?)^```$", page, re.M | re.S)]
    cells = [cell.source for cell in nbformat.read(ROOT / "notebooks/01-tutorial.ipynb", as_version=4).cells]
    shared = [block for block in blocks if "HOROVOD" not in block]
    assert shared
    assert [source for source in cells if source in shared] == shared
