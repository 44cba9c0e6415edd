"""Epochs, read from a real job's log: at the end, and while it runs."""

from __future__ import annotations

from typing import Any

import pytest

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


def test_metrics_as_a_frame(place: Any) -> None:
    pandas = pytest.importorskip("pandas")
    found = place.run("true").wait(timeout=30).metrics()
    assert found == [] and isinstance(found.to_dataframe(), pandas.DataFrame)
    again = type(found)([{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.0}])
    assert list(again.to_dataframe()["loss"]) == [2.0, 1.0]
