"""Reports of a training: what ``hvd.report`` writes, and what is read of it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from batchhvd import SpecError
from batchhvd.logs import reported
from batchhvd.resources.values.metrics import Metrics
from batchhvd.trainer import hvd, reporting


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job's logs, for a process that no launcher has numbered."""
    for name in reporting._RANKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZ_BATCHAI_STDOUTERR_DIR", str(tmp_path))
    return tmp_path


def written(folder: Path) -> str:
    return (folder / "metrics.jsonl").read_text()


def test_both_ends_name_the_same_file() -> None:
    assert reporting.FILE == reported.FILE


def test_a_report_is_read_back_with_all_its_digits(folder: Path) -> None:
    hvd.report(accuracy=np.float32(0.123456789), loss=1 / 3, epoch=1)
    hvd.report(**{"val loss": 2}, epoch=2)
    assert reported.read(written(folder)).rows == (
        {"epoch": 1, "accuracy": float(np.float32(0.123456789)), "loss": 1 / 3},
        {"epoch": 2, "val loss": 2.0},
    )


def test_only_rank_0_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOROVOD_RANK", "RANK", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.setenv(name, "1")
        hvd.report(accuracy=0.5, epoch=1)
        assert not (folder / "metrics.jsonl").exists()
        monkeypatch.setenv(name, "0")
        hvd.report(accuracy=0.5, epoch=1)
        (folder / "metrics.jsonl").unlink()
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epoch": 1}, "got no metric"),
        ({"accuracy": "0.5", "epoch": 1}, "accuracy is not a number but a str"),
        ({"accuracy": [0.5], "epoch": 1}, "accuracy is not a number but a list"),
        ({"accuracy": 0.5, "epoch": 1.5}, "epoch must be a whole number, not 1.5"),
        ({"accuracy": 0.5, "step": -1}, "step must be a whole number, not -1"),
    ],
)
def test_what_is_no_report_is_refused(folder: Path, given: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        hvd.report(**given)  # type: ignore[arg-type]
    assert not (folder / "metrics.jsonl").exists()


def test_reports_without_a_number_are_numbered_in_each_run(tmp_path: Path) -> None:
    code = "from batchhvd.trainer.reporting import report\nfor _ in range(3): report(loss=float('nan'))"
    environment = {"PATH": os.environ["PATH"], "AZ_BATCHAI_STDOUTERR_DIR": str(tmp_path)}
    for _ in range(2):  # the second is the job's next attempt
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
    rows = reported.read(written(tmp_path)).rows
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert all(math.isnan(row["loss"]) for row in rows)
    done = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.count("report() keeps nothing here: this is no job") == 1


def lines(*records: dict[str, float]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_a_later_report_of_an_epoch_replaces_an_earlier_one() -> None:
    text = lines({"epoch": 2, "loss": 9, "accuracy": 0.1}, {"epoch": 1, "loss": 3}, {"epoch": 2, "loss": 2})
    assert reported.read(text).rows == ({"epoch": 1, "loss": 3}, {"epoch": 2, "loss": 2, "accuracy": 0.1})


def test_steps_alone_are_rows_in_their_order() -> None:
    text = lines({"step": 200, "loss": 2}, {"step": 100, "loss": 3})
    assert reported.read(text).rows == ({"epoch": 1, "step": 100, "loss": 3}, {"epoch": 2, "step": 200, "loss": 2})


def test_steps_between_epochs_count_to_the_next_epoch() -> None:
    text = lines(
        {"step": 50, "loss": 3}, {"step": 100, "loss": 2}, {"epoch": 1, "accuracy": 0.5}, {"step": 150, "loss": 1}
    )
    assert reported.read(text).rows == ({"epoch": 1, "step": 100, "loss": 2, "accuracy": 0.5},)


def test_what_was_printed_stands_beside_what_was_reported() -> None:
    printed = "Epoch 1/2  loss 0.5000  accuracy 0.1000  100 images/s  0.1 s\n"
    found = Metrics._read(printed, 1, lines({"epoch": 1, "accuracy": 0.123456}, {"epoch": 2, "accuracy": 0.2}))
    assert [(row["epoch"], row.get("loss"), row["accuracy"]) for row in found] == [(1, 0.5, 0.123456), (2, None, 0.2)]
    by_step = Metrics._read(printed, 1, lines({"step": 7, "auc": 0.5}))  # its numbers are none of epochs
    assert list(by_step) == [{"epoch": 1, "step": 7, "auc": 0.5}]


def test_lines_that_are_no_reports_are_named() -> None:
    text = lines({"epoch": 1, "loss": 1}) + 'oops\n[1]\n{"loss": 2}\n\n{"epoch": 2, "lo'
    with pytest.warns(UserWarning, match=r"metrics\.jsonl: no reports in line 2, 3, 4, which were left out"):
        found = Metrics._read("", 1, text)
    assert list(found) == [{"epoch": 1, "loss": 1}]
