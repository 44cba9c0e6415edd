"""Jobs for other viewers, read back with TensorBoard's and MLflow's own readers: ``make search`` installs them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from batchhvd import SpecError
from batchhvd.cli import main as cli
from batchhvd.resources.values.compared_job import ComparedJob
from batchhvd.resources.values.comparison import Comparison, compare

LINES = [f'{{"epoch": {epoch}, "val_accuracy": {epoch / 7!r}, "loss": {1 / epoch!r}}}' for epoch in (1, 2, 3)]
COMMAND = "; ".join(f"echo '{line}' >> $AZ_BATCHAI_STDOUTERR_DIR/metrics.jsonl" for line in LINES)


@pytest.fixture(scope="module")
def job(place: Any) -> Any:
    """A job that has reported three epochs and ended, as a sweep would have made it."""
    point = {"BATCHHVD_POINT": '{"rate": 0.1, "kind": "a b"}'}
    return place.run(COMMAND, environment=point).wait(timeout=30)


def test_tensorboard_reads_what_was_written(place: Any, job: Any, tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader", reason="TensorBoard is not installed; make search"
    )
    found = place.experiment.compare(job.name)
    files = [found.to_tensorboard(tmp_path / "board") for _ in range(2)][-1]
    assert [file.parent for file in files] == [tmp_path / "board" / job.name]
    events = list(reader.EventFileLoader(str(files[0])).Load())
    values = {(one.tag, event.step): one for event in events for one in event.summary.value}
    assert set(values) == {(name, step) for name in ("val_accuracy", "loss") for step in (1, 2, 3)}
    assert values["loss", 2].tensor.float_val[0] == 0.5
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="cannot be written"):
        found.to_tensorboard(tmp_path / "file")


def test_mlflow_reads_what_was_written_and_we_what_mlflow_has(place: Any, job: Any, tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is not installed; make search")
    uri = f"sqlite:///{tmp_path}/runs.db"
    found = place.experiment.compare(job.name)
    assert (found.to_mlflow(uri, "ours"), found.to_mlflow(uri, "ours")) == (1, 0)
    client = tracking.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("ours").experiment_id])
    assert (run.info.run_name, run.info.status) == (job.name, "FINISHED")
    assert run.data.params == {"rate": "0.1", "kind": "a b", "ranks": "1"}
    history = client.get_metric_history(run.info.run_id, "val_accuracy")
    assert [(one.step, one.value) for one in history] == [(1, 1 / 7), (2, 2 / 7), (3, 3 / 7)]

    again = Comparison.from_mlflow(uri, "ours")
    mine, theirs = found.jobs[0], again.jobs[0]
    assert (theirs.name, theirs.point, theirs.ranks, theirs.state) == (mine.name, mine.point, 1, "succeeded")
    assert list(theirs.records) == list(mine.records)
    assert [row["best val_accuracy"] for row in found + again] == [3 / 7, 3 / 7]
    with pytest.raises(SpecError, match="MLflow has no experiment 'nothere'"):
        Comparison.from_mlflow(uri, "nothere")


def test_a_job_that_runs_is_written_again(tmp_path: Path) -> None:
    pytest.importorskip("mlflow.tracking", reason="MLflow is not installed; make search")
    uri, id = f"sqlite:///{tmp_path}/runs.db", "/subscriptions/1/jobs/j"
    for epochs in (1, 2):
        records = [{"epoch": epoch, "a@b": 0.5} for epoch in range(1, epochs + 1)]
        job = ComparedJob("j", "running", {}, records, id=id)
        with pytest.warns(UserWarning, match="MLflow takes no name such as 'a@b'; it is 'a_b' there"):
            assert compare([job]).to_mlflow(uri, "ours") == 1
    (found,) = Comparison.from_mlflow(uri, "ours").jobs
    assert (found.state, list(found.records)) == ("running", [{"epoch": 1, "a_b": 0.5}, {"epoch": 2, "a_b": 0.5}])


def test_the_command_line_writes_and_reads(
    place: Any, job: Any, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("mlflow.tracking", reason="MLflow is not installed; make search")
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed; make search")
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    where = ["-g", place.group.name, "-w", "work", "-e", "tries"]
    uri = f"sqlite:///{tmp_path}/runs.db"
    assert cli.run(["compare", job.name, *where, "--to-tensorboard", str(tmp_path), "--to-mlflow", uri]) == 0
    assert f"1 event files in {tmp_path}" in capsys.readouterr().err
    assert cli.run(["compare", job.name, *where, "--from-mlflow", uri, "--query", "[].job"]) == 0
    assert capsys.readouterr().out.count(job.name) == 2
    assert cli.run(["compare", job.name, *where, "--to-mlflow", "nothing://here"]) != 0


@pytest.mark.parametrize(("package", "message"), [("tensorboard", "TensorBoard"), ("mlflow", "MLflow")])
def test_what_is_not_installed_is_named(
    package: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    found = compare([ComparedJob("j", "succeeded", {}, [{"epoch": 1, "loss": 1.0}])])
    with pytest.raises(SpecError, match=rf"{message} is not installed; pip install 'batchhvd\[{package}\]'"):
        found.to_mlflow("sqlite://", "x") if package == "mlflow" else found.to_tensorboard(tmp_path)


def test_the_table_of_an_experiment(place: Any, job: Any) -> None:
    pandas = pytest.importorskip("pandas")
    table = place.experiment.table()
    assert isinstance(table, pandas.DataFrame)
    assert table.loc[job.name, "best val_accuracy"] == 3 / 7
