"""``plan`` and ``export``: what a job.json would do, and what an engine would run for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from attrs import evolve

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.failure import shortened
from batchhvd.cli.frame.printing import Format, formatted
from batchhvd.cli.job import described

if TYPE_CHECKING:
    from batchhvd import Experiment


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("-n", "--name", help="the name that the job would have (default: as for job submit)")
@scope("group", "workspace", "experiment")
@described
@formatted
@with_context
def plan(
    context: CliContext,
    file: str,
    name: str | None,
    group: str,
    workspace: str,
    experiment: str,
    cluster: str,
    account: str | None,
    mounts: tuple[str, ...],
    form: Format,
) -> None:
    """Checks what a job.json would do, without submitting it.

    FILE is the job.json; group, workspace, experiment and cluster say where it would run. Ends with exit code 1 if
    the job would fail.
    """
    from batchhvd.cli.frame.spec_file import job_spec

    spec = job_spec(context, file, group, account, mounts)
    on = context.workspace(group, workspace).cluster(cluster)
    place = context.experiment(group, workspace, experiment)
    made = place.plan_job(name or _free_name(place, Path(file).stem), spec, cluster=on)
    told = made.for_shell()
    if not (context.verbose or form.chosen):
        told = evolve(told, problems=tuple(map(shortened, told.problems)))
    form.show(told)
    if not made.good:
        raise click.exceptions.Exit(1)


def _free_name(place: Experiment, name: str) -> str:
    """Returns the name that ``job submit`` would give a job of this file."""
    from batchhvd import BadRequestError

    try:
        return place.next_name(name) if place.job(name).exists() else name
    except BadRequestError:  # no job can have it: the plan says so
        return name


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--engine", type=click.Choice(["slurm", "horovodrun"]), default="slurm", show_default=True, help="what it is for"
)
@click.option(
    "--storage-account-name",
    "account",
    envvar="AZURE_BATCHAI_STORAGE_ACCOUNT",
    help="replaces <AZURE_BATCHAI_STORAGE_ACCOUNT> in the file",
)
@with_context
def export(context: CliContext, file: str, engine: str, account: str | None) -> None:
    """Prints what an engine would run for a job.json."""
    from batchhvd import JobSpec
    from batchhvd.cli.frame.spec_file import spoken

    spec = spoken(lambda: JobSpec.read(file, account=account))
    command = [sys.executable, "-m", "batchhvd.service.job_script", "--engine", engine, "--name", Path(file).stem]
    done = subprocess.run(command, input=json.dumps(spec.to_document()), text=True)
    if done.returncode:
        raise click.exceptions.Exit(done.returncode)
