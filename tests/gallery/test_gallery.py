"""The recipes of Batch AI: each job file is accepted as printed and runs to its end; ``make gallery`` runs them all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import batchhvd
from batchhvd import ClusterSpec, Job, JobSpec, Session
from batchhvd.errors import JobFailedError
from tests.gallery.recipes import RECIPES, Recipe

SCRIPTS = Path(__file__).parent / "scripts"
WHOLE = bool(os.environ.get("GALLERY"))
CHOSEN = [name for name, recipe in RECIPES.items() if WHOLE or recipe.quick]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session = batchhvd.local(tmp_path_factory.mktemp("gallery"), prepare="skip", containers="off", idle=300)
    try:
        _furnish(session)
        yield session
    finally:
        session.stop_service()


def _furnish(session: Session) -> None:
    """Makes what the recipes' set-up makes: shares, the container of the data, a cluster with a share of its own."""
    group = session.create_group("gallery")
    account = group.create_storage_account("gallery")
    for share in ("logs", "scripts", "external"):
        account.create_share(share)
    pictures = SCRIPTS.parent
    data = account.create_container("data")
    for place in ("unlabeled_images/1.jpg", "unlabeled_images/22.jpg", "mnist_data/train"):
        data.upload(pictures / "recipes.py", place)
    outside = account.share("external").mount("external")
    volumes = {"azureFileShares": [outside.to_document()]}
    spec = ClusterSpec(vm_size="STANDARD_NC6", nodes=2, extra={"nodeSetup": {"mountVolumes": volumes}})
    group.create_workspace("w").create_cluster("nodes", spec)


def prepared(session: Session, name: str, recipe: Recipe, folder: Path) -> JobSpec:
    """Uploads the recipe's script to the place that its job file names, and reads the file as a user does."""
    account = session.group("gallery").storage_account("gallery")
    file = folder / "job.json"
    file.write_text(json.dumps({"properties": recipe.job}))
    if recipe.script:
        share, path = place_of(recipe)
        account.share(share).upload(SCRIPTS / recipe.script, path)
    return JobSpec.read(file, account=account)


def place_of(recipe: Recipe) -> tuple[str, str]:
    """Returns the share and the path of the script that a job file names."""
    if "customMpiSettings" in recipe.job:
        return "scripts", "classification_samples/batch_image_label.py"
    block = next(
        value for name, value in recipe.job.items() if name.endswith("Settings") and name != "containerSettings"
    )
    if "configFilePath" in block:
        return "external", f"cntk_samples/{block['configFilePath'].rpartition('/')[2]}"
    return "scripts", str(block["pythonScriptFilePath"]).partition("/scripts/")[2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RECIPES)
def test_a_job_file_is_accepted_as_printed(session: Session, name: str, tmp_path: Path) -> None:
    spec = prepared(session, name, RECIPES[name], tmp_path)
    workspace = session.group("gallery").workspace("w")
    plan = workspace.create_experiment("plans").plan_job(name, spec, cluster=workspace.cluster("nodes"))
    assert plan.checked and not plan.problems, plan.problems


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHOSEN)
def test_a_recipe_runs_to_its_end(session: Session, name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    spec = prepared(session, name, recipe, tmp_path)
    workspace = session.group("gallery").workspace("w")
    job = workspace.create_experiment("runs").create_job(name, spec, cluster=workspace.cluster("nodes"))
    told = _end(job)
    assert recipe.end in told, (told, "".join(job.stream("stderr.txt"))[-2000:])
    if recipe.end == "succeeded":
        servers = "replica" in recipe.script  # the parameter server, which does not train
        assert "".join(job.stream("stdout.txt")).count("trained: ") == spec.ranks - servers


def _end(job: Job) -> str:
    try:
        job.wait("succeeded", timeout=300)
    except JobFailedError as error:
        return str(error)
    return "succeeded"
