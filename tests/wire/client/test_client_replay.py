"""A run again: with the code that it had, the same result or the first difference by name."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from batchhvd import Horovod, Job, NotFoundError, SpecError
from batchhvd.resources.studies.pruning import prune_code
from batchhvd.resources.studies.run_record import read_record
from batchhvd.wire.models import moment

TRAINING = """
import sys
import numpy as np
from batchhvd.trainer.reporting import training_record
from helper import FACTOR

training_record.note("seed", int(sys.argv[1]))
weights = np.random.default_rng(int(sys.argv[1])).standard_normal(1000) * FACTOR
training_record.begin("numpy", 1, "none")
training_record.end([weights], {"loss": float(weights.mean())})
print("Epoch 1/1  loss %.4f" % weights.mean())
"""


def train(place: Any, folder: Path, name: str, seed: int = 1, **more: Any) -> Job:
    (folder / "train.py").write_text(TRAINING)
    (folder / "helper.py").write_text("FACTOR = 2\n")
    place.share.upload(folder, to=name)
    task = Horovod(
        script=place.share.mount("data") / f"{name}/{folder.name}/train.py", args=str(seed), python=sys.executable
    )
    spec = place.spec("true", task=task, **more)
    job: Job = place.experiment.create_job(name, spec, cluster=place.cluster)
    return job.wait(timeout=60)


def test_a_run_records_its_code_python_packages_and_machine(place: Any, tmp_path: Path) -> None:
    job = train(place, tmp_path, "recorded")
    record = read_record(job)
    assert set(record.code) == {"train.py", "helper.py"}
    assert record.node["python"] == ".".join(map(str, sys.version_info[:3]))
    assert record.part("packages")["numpy"]
    assert record.part("machine")["cores"]
    assert record.training["seed"] == 1
    kept = {entry.name for entry in place.share.files(".batchhvd/code")}
    assert set(record.code.values()) <= kept


def test_a_replay_of_unchanged_code_has_the_same_weights_and_runs_where_it_ran(place: Any, tmp_path: Path) -> None:
    job = train(place, tmp_path, "same")
    again = job.replay()
    verdict = again.wait(timeout=60)
    assert again.job.name == "same-0002" and again.notes == ()
    assert verdict.same is True and str(verdict) == "the same weights, bit for bit"
    assert again.job.spec.task == job.spec.task


def test_a_replay_runs_the_code_that_the_run_had_though_it_was_changed_and_removed(place: Any, tmp_path: Path) -> None:
    job = train(place, tmp_path, "changed")
    (tmp_path / "helper.py").write_text("FACTOR = 3\n")
    place.share.upload(tmp_path / "helper.py", to=f"changed/{tmp_path.name}/helper.py")
    place.share.delete_file(f"changed/{tmp_path.name}/train.py")
    again = job.replay()
    assert "train.py" in again.notes[0] and "helper.py" in again.notes[0]
    verdict = again.wait(timeout=60)
    assert verdict.same is True, verdict
    assert again.job.replay().wait(timeout=60).same is True  # a replay can be replayed


def test_other_code_and_another_seed_are_named_with_their_lines(place: Any, tmp_path: Path) -> None:
    first = train(place, tmp_path, "one")
    (tmp_path / "helper.py").write_text("FACTOR = 3\n")
    place.share.upload(tmp_path / "helper.py", to=f"one/{tmp_path.name}/helper.py")
    assert isinstance(first.spec.task, Horovod)
    spec = evolve(first.spec, task=evolve(first.spec.task, args="7"))
    second = place.experiment.create_job("two", spec, cluster=place.cluster).wait(timeout=60)
    found = first.difference(second)
    kinds = {one.kind: one for one in found}
    assert next(iter(found)).kind == "code" and kinds["code"].what == "helper.py"
    assert {"-FACTOR = 2", "+FACTOR = 3"} <= set(kinds["code"].lines)
    assert kinds["specification"].before == "1" and kinds["specification"].after == "7"
    assert (kinds["seed"].before, kinds["seed"].after) == ("1", "7")
    assert any(one.what == "weights" for one in found if one.kind == "results")
    assert "-FACTOR = 2" in str(found)
    assert len(first.difference(first)) == 0


def test_a_job_without_a_script_says_what_is_not_known(place: Any) -> None:
    job = place.run("true").wait(timeout=30)
    again = job.replay()
    assert "its code was not kept" in again.notes[0]
    verdict = again.wait(timeout=30)
    assert verdict.same is None and "not known" in str(verdict)
    assert not [file.name for file in job.files("batchhvd") if file.name == "run.json"]


@pytest.fixture
def own(session: Any, make_place: Any) -> Iterator[Any]:
    """A place whose jobs and code may all be removed."""
    place = make_place(session, f"own-{os.urandom(4).hex()}")
    yield place
    place.group.delete()


def test_code_that_was_removed_and_secrets_that_are_not_kept_are_refused(own: Any, tmp_path: Path) -> None:
    job = train(own, tmp_path, "gone", secrets={"TOKEN": "x"})
    with pytest.raises(SpecError, match="secrets TOKEN are not kept"):
        job.replay()
    own.share.upload(tmp_path / "train.py", to=f"gone/{tmp_path.name}/helper.py")
    for entry in own.share.files(".batchhvd/code"):
        own.share.delete_file(entry.path)
    with pytest.raises(NotFoundError, match="no longer kept"):
        job.replay(secrets={"TOKEN": "x"})


def test_pruning_removes_the_code_that_no_remaining_job_has_used(own: Any, tmp_path: Path, service: Any) -> None:
    old = train(own, tmp_path, "old")
    created = moment(old.document["properties"]["creationTime"])
    assert created is not None
    before = created.timestamp() - 0.9  # times of files are whole seconds: it is listed up to 1.9 seconds earlier
    used = set(read_record(old).code.values())
    for path in Path(service.root).rglob(".batchhvd/code/*"):
        if path.name in used:
            os.utime(path, (before, before))
    time.sleep(1)
    (tmp_path / "helper.py").write_text("FACTOR = 2  # newer\n")
    own.share.upload(tmp_path / "helper.py", to=f"old/{tmp_path.name}/helper.py")
    new = own.experiment.create_job("new", old.spec, cluster=own.cluster).wait(timeout=60)
    assert prune_code([own.group]) == 0  # the old job may still be replayed
    old.delete()
    assert prune_code([own.group], dry_run=True) == prune_code([own.group]) == 1  # train.py is the new one's too
    assert {entry.name for entry in own.share.files(".batchhvd/code")} == set(read_record(new).code.values())
    new.delete()
    assert prune_code([own.group]) == 2
    assert not list(own.share.files(".batchhvd/code"))
