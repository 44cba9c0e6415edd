"""``tutorial``, ``plan``, ``export``, ``doctor``, ``completion``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from batchhvd.cli.context import Settings, pass_settings, scope
from batchhvd.cli.job import described
from batchhvd.cli.printing import display, formatted


@click.command()
@click.option("--engine", default="processes", show_default=True, help="what runs the job")
@click.option("--nodes", type=click.IntRange(1), default=4, show_default=True, help="how many nodes, one rank each")
@click.option("--dataset", default="digits", show_default=True, help="digits, cifar10 or an .npz file")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="the folder with cifar-10-batches-py")
@click.option("--epochs", type=click.IntRange(1), help="passes over the data (default: the trainer's own)")
@click.option("--root", type=click.Path(file_okay=False, path_type=Path), help="where all goes (default: run/tutorial)")
@click.option("--script", type=click.Path(dir_okay=False, path_type=Path), help="another training script")
@click.option("--model", help="the file that the script leaves in saved_models, or '' for none")
@pass_settings
def tutorial(settings: Settings, root: Path | None, script: Path | None, model: str | None, **options: Any) -> None:
    """Runs the Horovod tutorial from its first step to its last.

    It starts the local service, creates all resources, trains, downloads the model, and deletes everything again.
    """
    from batchhvd.cli import walkthrough as flow

    chosen = {"script": script, "model": model if model is not None else "" if script else None}
    given = {name: value for name, value in {**options, **chosen}.items() if value is not None}
    signal.signal(signal.SIGTERM, _interrupt)
    place = root or Path(settings.root or "run/tutorial")
    code = flow.run(flow.Options(root=place, **given), settings.console(), live=settings.progress)
    raise click.exceptions.Exit(code)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends on SIGTERM as on Ctrl-C: with everything cleaned up."""
    raise KeyboardInterrupt


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@scope("group", "workspace", "experiment")
@described
@formatted
@pass_settings
def plan(
    settings: Settings,
    file: str,
    group: str,
    workspace: str,
    experiment: str,
    cluster: str,
    account: str | None,
    mounts: tuple[str, ...],
    output: str | None,
    expression: Any,
) -> None:
    """Says what a job.json would do, and does nothing.

    FILE is the job.json; group, workspace, experiment and cluster say where it would run. Ends with exit code 1 where
    something would make it fail.
    """
    from batchhvd.cli.spec_file import job_spec

    spec = job_spec(settings, file, group, account, mounts)
    on = settings.workspace(group, workspace).cluster(cluster)
    made = settings.experiment(group, workspace, experiment).plan(spec, on, name=Path(file).stem)
    display(made, output, expression)
    if not made.good:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--engine", default="slurm", show_default=True, help="slurm or horovodrun")
@click.option("--storage-account-name", "account", envvar="AZURE_BATCHAI_STORAGE_ACCOUNT", help="for the placeholder")
@pass_settings
def export(settings: Settings, file: str, engine: str, account: str | None) -> None:
    """Prints what an engine would run for a job.json."""
    from batchhvd import JobSpec
    from batchhvd.cli.spec_file import spoken

    spec = spoken(lambda: JobSpec.read(file, account=account))
    command = [sys.executable, "-m", "batchhvd.service.export", "--engine", engine, "--name", Path(file).stem]
    done = subprocess.run(command, input=json.dumps(spec.document()), text=True)
    if done.returncode:
        raise click.exceptions.Exit(done.returncode)


@click.command()
@formatted
@pass_settings
def doctor(settings: Settings, output: str | None, expression: Any) -> None:
    """Says what is missing here, and how to mend it.

    Ends with exit code 1 where something is missing that the tutorial needs.
    """
    from batchhvd.cli import checkup as examination

    console = settings.console(stderr=True)
    with console.status("examining …") if settings.progress and console.is_terminal else nullcontext():
        findings = examination.examine()
    if output or expression is not None:
        display(findings, output, expression)
    else:
        click.echo("\n".join(map(str, findings)))
    if not examination.healthy(findings):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints the completion script of a shell.

    For bash: eval "$(batchhvd completion bash)"
    """
    from click.shell_completion import get_completion_class

    program = click.get_current_context().find_root().command

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(program, {}, "batchhvd", "_BATCHHVD_COMPLETE").source())
