"""Sweeps: many jobs from one, over a real service."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from batchhvd import ConflictError, CustomToolkit, JobSpec, NotFoundError, SpecError, sweeps
from batchhvd.cli import main as cli

TRAINING = """
import json, os, sys, time
rate, pause = float(sys.argv[1]), float(sys.argv[2])
assert json.loads(os.environ["BATCHHVD_POINT"])["rate"] == rate == float(os.environ["PARAM_RATE"])
for epoch in range(1, 10):
    if rate > 0.9 and not os.path.exists(os.path.join(os.path.dirname(sys.argv[0]), "mended")):
        sys.exit(3)
    accuracy = 1 - rate - 1 / (1 + epoch)
    print(f"Epoch {epoch}/9  loss {rate:.4f}  accuracy {accuracy:.4f}  100 images/s  0.1 s", flush=True)
    time.sleep(pause)
"""


@pytest.fixture
def folder(place: Any, tmp_path: Path) -> str:
    """A folder of the share with the training."""
    (tmp_path / "train.py").write_text(TRAINING)
    name = f"code{os.urandom(4).hex()}"
    place.share.upload(tmp_path / "train.py", f"{name}/train.py")
    return name


def training(place: Any, folder: str, pause: float = 0.0) -> JobSpec:
    mount = place.share.mount("data")
    task = CustomToolkit(f"{sys.executable} {mount / folder / 'train.py'} {{rate}} {pause}")
    return JobSpec(nodes=1, task=task, mounts=[mount], logs=mount / "logs")


def name() -> str:
    return f"s{os.urandom(4).hex()}"


def test_every_point_is_tried_once_and_the_best_is_found(place: Any, folder: str) -> None:
    spec, space = training(place, folder), sweeps.grid(rate=[0.5, 0.1, 0.3])
    sweep = place.experiment.sweep(name(), spec, space, cluster=place.cluster, at_once=2)
    assert [trial.state for trial in sweep] == ["planned"] * 3
    sweep.run(timeout=60)
    assert [trial.state for trial in sweep] == ["succeeded"] * 3
    best = sweep.best("accuracy")
    assert (best.number, best.point, best.job.name) == (2, {"rate": 0.1}, f"{sweep.name}_0002")
    assert sweep.best("loss").number == 2
    assert sweep.best("loss", goal="max").number == 1
    row = sweep.table()[1]
    assert {key: row[key] for key in ("trial", "rate", "state", "epochs", "accuracy")} == {
        **{"trial": 2, "rate": 0.1, "state": "succeeded", "epochs": 9, "accuracy": 0.8}
    }
    again = place.experiment.sweep(sweep.name, spec, space, cluster=place.cluster).run(timeout=30)
    assert again.table() == sweep.table()
    assert "<table" in again._repr_html_()
    with pytest.raises(SpecError, match="trial 1 reports no 'acc'; take one of accuracy"):
        again.best("acc")


def test_trials_that_are_behind_are_given_up(place: Any, folder: str) -> None:
    rule = sweeps.asha("accuracy", first=1, factor=3)
    space = sweeps.grid(rate=[0.1, 0.5, 0.6, 0.7, 0.8])
    sweep = place.experiment.sweep(name(), training(place, folder, 0.3), space, cluster=place.cluster, stop=rule)
    sweep.run(timeout=90)
    states = [str(trial.state) for trial in sweep]
    assert states[0] == "succeeded"
    assert "given up" in states
    assert sweep.best().number == 1
    given_up = [trial for trial in sweep if trial.state == "given up"]
    assert min(len(trial.metrics) for trial in given_up) < 9
    compared = place.experiment.compare(*(trial.job.name for trial in sweep if trial.job))
    assert [row["state"] for row in compared] == states  # the jobs of those that were given up count as failed


def test_a_rule_for_a_metric_that_nobody_reports_says_so(place: Any, folder: str) -> None:
    space = sweeps.grid(rate=[0.1, 0.2])
    sweep = place.experiment.sweep(
        name(), training(place, folder, 0.2), space, cluster=place.cluster, stop=sweeps.asha("val_accuracy")
    )
    with pytest.raises(SpecError, match="reports no 'val_accuracy'; take one of accuracy, images_per_second, loss"):
        sweep.run(timeout=60)
    assert {str(trial.state) for trial in sweep.stop()} <= {"given up", "succeeded"}


def test_what_failed_runs_again_under_its_next_name(place: Any, folder: str, tmp_path: Path) -> None:
    sweep = place.experiment.sweep(
        name(), training(place, folder), sweeps.grid(rate=[0.1, 1.0]), cluster=place.cluster
    ).run(timeout=60)
    assert [trial.state for trial in sweep] == ["succeeded", "failed"]
    (tmp_path / "mended").touch()
    place.share.upload(tmp_path / "mended", f"{folder}/mended")
    assert [job.name for job in sweep.retry()] == [f"{sweep.name}_0002-0002"]
    sweep.run(timeout=60)
    assert [trial.state for trial in sweep] == ["succeeded", "succeeded"]
    assert sweep.retry() == []


def test_a_sweep_of_another_definition_is_not_mixed_up(place: Any, folder: str) -> None:
    spec, chosen = training(place, folder), name()
    place.experiment.sweep(chosen, spec, sweeps.grid(rate=[0.1]), cluster=place.cluster)
    with pytest.raises(ConflictError, match=r"exists in experiment .* with another definition"):
        place.experiment.sweep(chosen, spec, sweeps.grid(rate=[0.2]), cluster=place.cluster)
    with pytest.raises(NotFoundError, match="has no sweep"):  # nothing was submitted yet
        place.experiment.open_sweep(chosen)
    with pytest.raises(SpecError, match="is no name of a sweep"):
        place.experiment.sweep("a/b", spec, sweeps.grid(rate=[0.1]), cluster=place.cluster)
    with pytest.raises(SpecError, match=r"nothing stands for \{rate\}"):
        place.experiment.sweep(name(), spec, sweeps.grid(other=[0.1]), cluster=place.cluster)


def test_a_mended_script_does_not_show_the_old_results(place: Any, folder: str, tmp_path: Path) -> None:
    spec, space = training(place, folder), sweeps.grid(rate=[0.1, 0.2])
    sweep = place.experiment.sweep(name(), spec, space, cluster=place.cluster).run(timeout=60)
    (tmp_path / "train.py").write_text(TRAINING.replace("accuracy = 1 -", "accuracy = 2 -"))
    place.share.upload(tmp_path / "train.py", f"{folder}/train.py")
    changed = f"2 trials ran an earlier version of data/{folder}/train.py"
    with pytest.raises(ConflictError, match=f"since then its files have changed: {changed}. Nothing was started"):
        place.experiment.sweep(sweep.name, spec, space, cluster=place.cluster)
    with pytest.warns(UserWarning, match=f"{changed}; they stay as they are"):
        place.experiment.open_sweep(sweep.name).run(timeout=60)


def test_somebody_else_s_job_is_no_trial(place: Any, folder: str) -> None:
    chosen = name()
    other = place.experiment.create_job(f"{chosen}_0002", place.spec("true"), cluster=place.cluster)
    sweep = place.experiment.sweep(chosen, training(place, folder), sweeps.grid(rate=[0.1, 0.2]), cluster=place.cluster)
    assert [trial.state for trial in sweep.refresh()] == ["planned", "planned"]
    with pytest.raises(ConflictError, match=f"Job '{other.name}': The job '{other.name}' exists already with other"):
        sweep.run(timeout=60)


def test_secrets_are_not_kept_and_their_lack_is_said(place: Any) -> None:
    spec = place.spec("true {x}", secrets={"KEY": "very secret"})
    sweep = place.experiment.sweep(name(), spec, sweeps.grid(x=[1, 2]), cluster=place.cluster, at_once=1)
    sweep.submit()
    other = place.experiment.open_sweep(sweep.name)
    with pytest.raises(SpecError, match="the values of KEY are not kept with a sweep; make the sweep again"):
        other.run(timeout=60)
    assert [trial.state for trial in sweep.run(timeout=60)] == ["succeeded", "succeeded"]


DRIVER = """
import sys, batchhvd
from batchhvd import sweeps
root, group, name, folder = sys.argv[1:]
session = batchhvd.local(root)
group = session.group(group)
workspace = group.workspace("work")
experiment = workspace.experiment("tries")
account = next(iter(group.storage_accounts()))
mount = account.share("files").mount("data")
task = batchhvd.CustomToolkit(f"{sys.executable} {mount / folder / 'train.py'} {{rate}} 0.02")
spec = batchhvd.JobSpec(nodes=1, task=task, mounts=[mount], logs=mount / "logs")
space = sweeps.grid(rate=[number / 100 for number in range(12)])
experiment.sweep(name, spec, space, cluster=workspace.cluster("nodes"), at_once=3).run(timeout=120)
"""


def test_a_driver_that_is_killed_loses_no_point_and_starts_none_twice(place: Any, folder: str, service: Any) -> None:
    chosen = name()
    arguments = [str(service.root), place.group.name, chosen, folder]
    for seconds in (0.9, 1.3, 1.8):
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, *arguments])
        time.sleep(seconds)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    subprocess.run([sys.executable, "-c", DRIVER, *arguments], check=True, timeout=150)
    sweep = place.experiment.open_sweep(chosen)
    assert [(trial.number, str(trial.state), len(trial.metrics)) for trial in sweep] == [
        (number, "succeeded", 9) for number in range(1, 13)
    ]
    jobs = [job.name for job in place.experiment.jobs() if job.name.startswith(chosen)]
    assert sorted(jobs) == [f"{chosen}_{number:04}" for number in range(1, 13)]


def test_jobs_are_put_side_by_side(place: Any, folder: str, service: Any, monkeypatch: Any, capsys: Any) -> None:
    sweep = place.experiment.sweep(name(), training(place, folder), sweeps.grid(rate=[0.3, 0.1]), cluster=place.cluster)
    names = [str(trial.job and trial.job.name) for trial in sweep.run(timeout=60)]
    found = place.experiment.compare(*names)
    assert (found.metric, [row["job"] for row in found]) == ("accuracy", names)
    first, second = found.rows
    assert (first["rate"], first["accuracy"], first["best accuracy"], first["at epoch"]) == (0.3, 0.6, 0.6, 9)
    assert (second["state"], second["ranks"], second["epochs"], second["images/s"]) == ("succeeded", 1, 9, 100.0)
    assert first["files"] == second["files"] != ""
    assert place.experiment.compare(names[1], metric="loss").rows[0]["best loss"] == 0.1
    page = found._repr_html_()
    assert page.count("<polyline") == 2
    assert all(f">{one}</text>" in page for one in names)
    with pytest.raises(SpecError, match="no job has reported 'auc'; take one of loss, accuracy"):
        place.experiment.compare(*names, metric="auc")
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    where = ["-g", place.group.name, "-w", "work", "-e", "tries"]
    assert cli.run(["compare", *names, *where]) == 0
    out = capsys.readouterr().out
    assert "▁▄▅▆▇" in out
    assert "best accuracy" in out
    assert cli.run(["compare", "nothere", *where]) == 3


def test_the_command_line(
    place: Any, folder: str, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    chosen = name()
    training(place, folder, 0.1).write(f"{chosen}.json")
    where = ["-g", place.group.name, "-w", "work", "-e", "tries"]
    common = [*where, "-c", "nodes"]
    values = ["--set", "rate=0.5,0.1,1.0", "--set", "idle=x"]
    assert cli.run(["sweep", f"{chosen}.json", *values, "--stop", "asha:accuracy", *common]) == 1
    out, err = capsys.readouterr()
    assert "warning: the job has no {idle}; the value is only in the variable PARAM_IDLE" in err
    assert "failed" in out
    assert cli.run(["sweep", "best", chosen, *where, "--query", "rate"]) == 0
    assert capsys.readouterr().out == "0.1\n"
    assert cli.run(["sweep", "show", chosen, *where, "--query", "[].trial"]) == 0
    assert capsys.readouterr().out.split() == ["[", "1,", "2,", "3", "]"]
    assert cli.run(["sweep", "show", "nothere", *where]) == 3
    assert cli.run(["sweep", f"{chosen}.json", "--set", "rate=0.1", "--stop", "asha", *common]) == 2
    assert cli.run(["sweep", f"{chosen}.json", "--set", "rate=uniform:1", "--random", "3", *common]) == 2
    assert cli.run(["sweep", f"{chosen}.json", *common]) == 2
    assert cli.run(["sweep", f"{chosen}.json", "--set", "rate=1", "--detach", "--at-once", "2", *common]) == 2
    assert "needs values" in capsys.readouterr().err
