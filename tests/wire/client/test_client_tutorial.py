"""The tutorial as a user types it, with a script that costs nothing; the training itself is an end-to-end test."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

BLOCK = Path(__file__).parents[2] / "data" / "tutorial_block.txt"
README = Path(__file__).parents[3] / "README.md"

SCRIPT = """
import os, pathlib, sys
rank, size = os.environ["HOROVOD_RANK"], os.environ["HOROVOD_SIZE"]
print(f"rank {rank} of {size}", flush=True)
folder = pathlib.Path(sys.argv[1].removeprefix("--dir=")) / "saved_models"
if rank == "0":
    folder.mkdir(exist_ok=True)
    (folder / "keras_cifar10_trained_model.h5").write_bytes(b"weights")
"""


def test_the_block_has_every_line_of_the_readme_in_its_order() -> None:
    shown = README.read_text().partition("## The tutorial in Python")[2].partition("```python\n")[2].partition("```")[0]
    lines = iter(line.partition("  #")[0].rstrip() for line in BLOCK.read_text().splitlines())
    missing = [line for line in filter(str.strip, shown.splitlines()) if line not in lines]
    assert shown and not missing


def test_the_block_runs_as_it_stands_and_again(service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "wörk here"
    folder.mkdir()
    (folder / "cifar_cnn_distributed.py").write_text(SCRIPT)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    for _ in range(2):
        shown = io.StringIO()
        names: dict[str, Any] = {}
        with redirect_stdout(shown):
            exec(compile(BLOCK.read_text(), str(BLOCK), "exec"), names)
        text = shown.getvalue()
        for rank in range(4):
            assert f"rank {rank} of 4\n" in text
        model = folder / "keras_cifar10_trained_model.h5"
        assert model.read_bytes() == b"weights"
        assert names["job"].exit_code == 0 and not names["group"].exists()
        model.unlink()
