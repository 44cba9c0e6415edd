"""``run``: a script on some nodes, from the file to the result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, told, with_context
from batchhvd.cli.frame.failure import described
from batchhvd.cli.frame.names import note
from batchhvd.cli.job import follow_log

if TYPE_CHECKING:
    from batchhvd import Job

INTERRUPTED = 130
RESULTS = "batchhvd-results"  # below the working directory; as in transfer/code.py, which never takes it for code


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.argument("script", type=click.Path(dir_okay=False))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="how many nodes, one rank each")
@click.option("--pytorch", is_flag=True, help="start the ranks as torchrun does, not as Horovod's")
@click.option("--engine", help="the engine, if the service has to be started (default: processes)")
@click.option("--code", type=click.Path(file_okay=False), help="the folder to upload (default: the script's)")
@click.option("--preparation", default="", help="a command line that runs on each node before")
@click.option("--environment", type=click.Path(dir_okay=False), help="a requirements.txt: run in an environment of it")
@click.option(
    "--to",
    type=click.Path(file_okay=False),
    help=f"the folder for the results (default: in {RESULTS})",
)
@click.option("--detach", is_flag=True, help="submit it and return")
@click.option("--no-input", is_flag=True, help="do not ask after Ctrl-C; the job continues")
@with_context
def run(
    context: CliContext,
    script: str,
    args: tuple[str, ...],
    nodes: int,
    pytorch: bool,
    engine: str | None,
    code: str | None,
    preparation: str,
    environment: str | None,
    to: str | None,
    detach: bool,
    no_input: bool,
) -> None:
    """Runs SCRIPT with ARGS on some nodes, and ends with its exit code.

    Makes what is missing, uploads the script's folder (less what .gitignore and .batchhvdignore name), submits a new
    run, shows its output and downloads what it writes to $AZ_BATCHAI_OUTPUT_RESULT. Put -- before arguments that are
    options of this command too.
    """
    with told():
        session = context.session(engine)
        toolkit = "pytorch" if pytorch else "horovod"
        job = session.run(
            script,
            nodes=nodes,
            args=args,
            code=code,
            preparation=preparation,
            environment=environment,
            toolkit=toolkit,
        )
    click.secho(f"job {job.name} on {nodes} {'node' if nodes == 1 else 'nodes'}", dim=True, err=True)
    note(job.kind, [job.name])
    if detach:
        click.echo(_later(job), err=True)
        return
    try:
        follow_log(context, job, "stdout.txt", hint=False)
    except KeyboardInterrupt:
        _interrupted(job, ask=not no_input)
    _results(job, Path(to or Path(RESULTS, job.name)))
    _end(job)


def _end(job: Job) -> None:
    """Ends the program as the job ended."""
    from batchhvd.errors import JobFailedError

    try:
        job.wait("succeeded", timeout=60)
    except JobFailedError as error:
        click.secho(described(job, error), fg="red", err=True)
        click.echo(f"`{_command('explain', job)}` says why, with the evidence", err=True)
        raise click.exceptions.Exit(error.exit_code or 1) from error


def _command(verb: str, job: Job) -> str:
    return f"batchhvd job {verb} {job.name} -g {job.group.name} -w {job.workspace.name} -e {job.experiment.name}"


def _later(job: Job) -> str:
    """Returns how to come back to a job."""
    return f"follow it with: {_command('logs', job)}\nend it with:    {_command('terminate', job)}"


def _interrupted(job: Job, *, ask: bool) -> None:
    """Asks whether a job shall continue; a second Ctrl-C ends it. Ends the program."""
    try:
        ending = ask and click.confirm(f"End job {job.name}? Otherwise it continues", default=False, err=True)
    except (click.Abort, KeyboardInterrupt):
        ending = True
    if ending:
        click.echo(f"ending {job.name} …", err=True)
        job.terminate()
    else:
        click.echo(_later(job), err=True)
    raise click.exceptions.Exit(INTERRUPTED)


def _results(job: Job, to: Path) -> None:
    """Downloads what a job has written to its output directory."""
    found = job.download(to)
    if found:
        noun = "file" if len(found) == 1 else "files"
        click.secho(f"{len(found)} {noun} in {to}/", dim=True, err=True)
