"""Epochs, read from a real job's log: at the end, and while it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from batchhvd import Horovod

LOG = r"""
for epoch in 1 2
do
    echo "Epoch $epoch/2"
    printf '\r1/2 ━━━━━━━━━━━━━━━━━━━━ 1s 10ms/step - accuracy: 0.4000 - loss: 2.0'
    sleep 0.1
    printf '\r2/2 ━━━━━━━━━━━━━━━━━━━━ 1s 10ms/step - accuracy: 0.%s000 - loss: 1.0 - val_loss: 0.6\n' $epoch
done
printf 'Test loss: 0.25\nTest accuracy: 0.875\n'
"""


def test_metrics_of_a_job(place: Any) -> None:
    job = place.run(LOG)
    kept = list(job.progress(timeout=30))  # each one holds what it says
    seen = [len(progress.records) for progress in kept]
    assert kept[-1].test == {"loss": 0.25, "accuracy": 0.875} and (kept[0].test == {} or len(kept) == 2)
    assert seen == sorted(seen) and seen[-1] == 2
    found = job.metrics()
    assert [record["epoch"] for record in found] == [1, 2]
    assert (found[1]["accuracy"], found[1]["val_loss"]) == (0.2, 0.6)
    assert found.test == {"loss": 0.25, "accuracy": 0.875}
    assert "<svg" in found._repr_html_()


REPORTER = """
import sys
from batchhvd.trainer import hvd
assert "keras" not in sys.modules and "tensorflow" not in sys.modules
for epoch in (1, 2, 3):
    hvd.report(epoch=epoch, accuracy=epoch / 7, error=float("nan"))
"""


def test_two_ranks_report_once(place: Any, tmp_path: Path) -> None:
    (tmp_path / "reporter.py").write_text(REPORTER)
    place.share.upload(tmp_path / "reporter.py", "code/reporter.py")
    script = place.share.mount("data") / "code/reporter.py"
    spec = place.spec("true", nodes=2, task=Horovod(script=script, processes=2, python=sys.executable))
    job = place.experiment.create_job(f"j{os.urandom(4).hex()}", spec, cluster=place.cluster).wait(timeout=60)
    assert [(row["epoch"], row["accuracy"]) for row in job.metrics()] == [(1, 1 / 7), (2, 2 / 7), (3, 3 / 7)]
    assert next(file for file in job.files() if file.name == "metrics.jsonl").read().count(b"\n") == 3
    assert place.experiment.compare(job.name, metric="accuracy").rows[0]["best accuracy"] == 3 / 7


def test_a_shell_script_reports(place: Any) -> None:
    line = '{"epoch": 1, "val_accuracy": 0.75}'
    job = place.run(f"echo '{line}' >> $AZ_BATCHAI_STDOUTERR_DIR/metrics.jsonl").wait(timeout=30)
    assert list(job.metrics()) == [{"epoch": 1, "val_accuracy": 0.75}]


def test_metrics_as_a_frame(place: Any) -> None:
    pandas = pytest.importorskip("pandas")
    found = place.run("true").wait(timeout=30).metrics()
    assert found == [] and isinstance(found.to_dataframe(), pandas.DataFrame)
    again = type(found)([{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}])
    assert list(again.to_dataframe()["loss"]) == [2.0, 1.0]
