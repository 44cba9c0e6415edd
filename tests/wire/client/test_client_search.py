"""Sweeps whose points Optuna chooses. They need Optuna: ``make search`` installs it and runs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from batchhvd import JobSpec, SpecError, sweeps
from batchhvd.cli import main as cli
from batchhvd.sweeps import search

TRAINING = (
    """echo '{"epoch": 1, "score": '$(( 1000 - ({x} - 30) * ({x} - 30) ))'}' """
    ">> $AZ_BATCHAI_STDOUTERR_DIR/metrics.jsonl; sleep 0.1"
)
TRIALS = 14  # the first ten are random


@pytest.fixture
def spec(place: Any) -> JobSpec:
    made: JobSpec = place.spec(TRAINING)
    return made


def space(trials: int = TRIALS, seed: int = 3) -> sweeps.Search:
    return sweeps.optuna(trials, metric="score", seed=seed, x=sweeps.integer(0, 100))


def name() -> str:
    return f"s{os.urandom(4).hex()}"


def test_a_search_reads_back_as_it_was_written() -> None:
    made = sweeps.optuna(
        5, metric="val_loss", seed=2, rate=sweeps.loguniform(1e-4, 0.1), batch=[32, 64], depth=sweeps.integer(1, 3)
    )
    assert made.goal == "min"
    again = search.described(made.describe())
    assert again is not None
    assert (again, again.text) == (made, made.text)
    for given in ({"n": 0, "x": [1]}, {"n": 3}, {"n": 3, "goal": "up", "x": [1]}, {"n": 3, "x": []}):
        with pytest.raises(SpecError):
            sweeps.optuna(**{"metric": "loss", **given})  # type: ignore[arg-type]


def test_without_optuna_its_extra_is_named(place: Any, spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SpecError, match=r"needs Optuna, which is not installed.*pip install 'batchhvd\[optuna\]'"):
        place.experiment.sweep(name(), spec, space(), cluster=place.cluster, at_once=2).run(timeout=30)


def test_a_search_needs_at_once(place: Any, spec: JobSpec) -> None:
    with pytest.raises(SpecError, match="cannot begin all its trials at once; give at_once"):
        place.experiment.sweep(name(), spec, space(), cluster=place.cluster)


DRIVER = """
import sys
import batchhvd
from tests.wire.client.test_client_search import space
root, group, name = sys.argv[1:]
with batchhvd.local(root) as session:
    workspace = session.group(group).workspace("work")
    share = next(iter(session.group(group).storage_accounts())).share("files")
    spec = batchhvd.JobSpec.read(name + ".json")
    cluster = workspace.cluster("nodes")
    workspace.experiment("tries").sweep(name, spec, space(), cluster=cluster, at_once=1).run(timeout=200)
"""


@pytest.mark.timeout(300)
def test_a_driver_that_is_killed_goes_on_with_the_same_points(
    place: Any, spec: JobSpec, service: Any, tmp_path: Path
) -> None:
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed; make search does it")
    calm, storm = name(), name()
    sweep = place.experiment.sweep(calm, spec, space(), cluster=place.cluster, at_once=1).run(timeout=120)
    points = [trial.point["x"] for trial in sweep]
    assert len(set(points[:10])) > 3

    spec.write(tmp_path / f"{storm}.json")
    command = [sys.executable, "-c", DRIVER, str(service.root), place.group.name, storm]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    for seconds in (2.0, 3.0, 2.5):
        driver = subprocess.Popen(command, cwd=tmp_path, env=environment)
        time.sleep(seconds)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=200)
    again = place.experiment.open_sweep(storm)
    assert [(trial.point["x"], str(trial.state)) for trial in again] == [(x, "succeeded") for x in points]
    assert again.best().metrics[-1]["score"] == max(1000 - (x - 30) ** 2 for x in points)

    journal = next((service.root / "shares").glob(f"*/files/sweeps/tries/{storm}.optuna.jsonl"))
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    study = optuna.load_study(study_name=storm, storage=optuna.storages.JournalStorage(backend))
    assert [(trial.params["x"], trial.value) for trial in study.trials] == [(x, 1000 - (x - 30) ** 2) for x in points]


@pytest.mark.timeout(120)
def test_a_lost_journal_is_made_again_from_the_jobs(place: Any, spec: JobSpec, service: Any) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed; make search does it")
    chosen = name()
    sweep = place.experiment.sweep(chosen, spec, space(4), cluster=place.cluster, at_once=2).run(timeout=60)
    next((service.root / "shares").glob(f"*/files/sweeps/tries/{chosen}.optuna.jsonl")).unlink()
    again = place.experiment.open_sweep(chosen).run(timeout=60)
    assert again.table() == sweep.table()
    assert not any(again.study.is_open(number) for number in range(1, 5))


@pytest.mark.timeout(120)
def test_the_command_line_searches(
    place: Any, spec: JobSpec, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed; make search does it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCHHVD_ROOT", str(service.root))
    chosen = name()
    spec.write(f"{chosen}.json")
    where = ["-g", place.group.name, "-w", "work", "-e", "tries"]
    values = ["--optuna", "3", "--metric", "score", "--set", "x=integer:0:100", "--at-once", "2", "-c", "nodes"]
    assert cli.run(["sweep", f"{chosen}.json", *values, *where]) == 0
    assert cli.run(["sweep", "best", chosen, *where, "--query", "state"]) == 0
    assert '"succeeded"' in capsys.readouterr().out
    assert cli.run(["sweep", f"{chosen}.json", *values, "--random", "3", *where]) == 2
    assert cli.run(["sweep", f"{chosen}.json", "--optuna", "3", "--set", "x=1,2", *where, "-c", "nodes"]) == 2
    assert "--optuna needs --metric" in capsys.readouterr().err
