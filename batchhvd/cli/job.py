"""``job``: submit, show, list, wait, logs, metrics, files, explain, export, terminate, delete."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchhvd.cli import job_inside, jobs
from batchhvd.cli.frame.context import CliContext, Command, scope, told, with_context
from batchhvd.cli.frame.failure import end_as
from batchhvd.cli.frame.names import completed
from batchhvd.cli.frame.printing import Format, formatted, printed, shown
from batchhvd.cli.frame.verb import Verbs, common

if TYPE_CHECKING:
    from batchhvd import FileEntry, Job, Listing, Verdict

_HERE = ("group", "workspace", "experiment")


@click.group(cls=Verbs)
def job() -> None:
    """Jobs: submit, follow and understand them."""


def described(command: Command) -> Command:
    """Adds the options that a job.json may need to a command."""
    command = click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="PATH=ACCOUNT/SHARE",
        help="the share to mount at a path of the file",
    )(command)
    command = click.option(
        "--storage-account-name",
        "account",
        envvar="AZURE_BATCHAI_STORAGE_ACCOUNT",
        show_envvar=True,
        help="replaces <AZURE_BATCHAI_STORAGE_ACCOUNT> in the file",
    )(command)
    return click.option(
        "-c",
        "--cluster",
        required=True,
        envvar="BATCHHVD_CLUSTER",
        show_envvar=True,
        help="the cluster to run on",
        shell_complete=completed("cluster"),
    )(command)


@job.command("submit")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("-n", "--name", help="the job's name (default: the file's without .json, with the next number if taken)")
@click.option("--rerun", is_flag=True, help="if the job NAME exists, keep it and run this one under the next number")
@click.option("--replace", is_flag=True, help="if the job NAME exists, delete it first")
@click.option("--after", multiple=True, metavar="JOB", help="a job that must succeed first (repeatable)")
@click.option("--after-ended", multiple=True, metavar="JOB", help="a job that must end first (repeatable)")
@scope(*_HERE)
@described
@click.option("--follow", is_flag=True, help="show the log until the job ends, then exit with its exit code")
@shown
@with_context
def submit(
    context: CliContext,
    file: str,
    name: str | None,
    group: str,
    workspace: str,
    experiment: str,
    cluster: str,
    account: str | None,
    mounts: tuple[str, ...],
    follow: bool,
    rerun: bool,
    replace: bool,
    after: tuple[str, ...],
    after_ended: tuple[str, ...],
) -> Job | None:
    """Submits the job that FILE, a job.json, describes.

    A job that has ended is not started again unless --rerun or --replace says so.
    """
    from batchhvd.cli.frame.spec_file import job_spec

    if rerun and replace:
        raise click.UsageError("give either --rerun or --replace")
    spec = job_spec(context, file, group, account, mounts)
    place = context.experiment(group, workspace, experiment)
    on = context.workspace(group, workspace).cluster(cluster)
    wanted = name or Path(file).stem
    with told():
        made = place.create_job(
            wanted,
            spec,
            cluster=on,
            rerun=rerun or not (name or replace),
            replace=replace,
            after=after,
            after_ended=after_ended,
        )
    if made.name != wanted:
        click.secho(f"job {wanted} exists; this run of it is job {made.name}", dim=True, err=True)
    if not follow:
        return made
    follow_log(context, made, "stdout.txt", cursor=0, bars=True)
    _end(made)
    return None


job.add_command(submit, "create")


@job.command("logs")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@click.option("-f", "--file", default="stdout.txt", show_default=True, help="which log file")
@click.option("--output-directory", default="stdouterr", show_default=True, help="the id of its output directory")
@click.option(
    "--follow/--no-follow", default=True, help="continue until the job has ended (the default), or print what there is"
)
@click.option("--cursor", type=click.IntRange(0), default=0, help="start at this byte")
@click.option("--bars/--no-bars", default=True, help="show progress as bars, in a terminal")
@with_context
def logs(
    context: CliContext,
    name: str,
    group: str,
    workspace: str,
    experiment: str,
    file: str,
    output_directory: str,
    follow: bool,
    cursor: int,
    bars: bool,
) -> None:
    """Shows a log file of the job NAME while it is written."""
    found = context.experiment(group, workspace, experiment).job(name)
    if follow:
        _tell_missing(found, file, output_directory)
        follow_log(context, found, file, cursor=cursor, bars=bars, output=output_directory)
        return
    found.refresh()
    match = [one for one in found.files(output_directory) if one.name == file]
    if not match:
        raise click.UsageError(f"job {name} has not written {file} yet; `batchhvd job files {name}` lists what it has")
    sys.stdout.buffer.write(match[0].read()[cursor:])
    sys.stdout.buffer.flush()


def _tell_missing(found: Job, file: str, output: str) -> None:
    """Says at once that a job which writes its logs already has none of that name, and which files it has."""
    if found.refresh().started is None or found.ended:  # nothing can be there yet, or the stream says it
        return
    names = [one.name for one in found.files(output)]
    if names and file not in names:
        text = f"job {found.name} has not written {file} yet, and this waits for it. It has: {', '.join(names)}"
        click.secho(text, fg="yellow", err=True)


def follow_log(
    context: CliContext,
    found: Job,
    file: str,
    *,
    cursor: int = 0,
    bars: bool = True,
    output: str = "stdouterr",
    hint: bool = True,
) -> None:
    """Shows a log; Ctrl-C does not end the job.

    Args:
        context: how to show it.
        found: the job.
        file: the log's name.
        cursor: the byte to start from.
        bars: whether progress is shown as bars.
        output: the output directory's id.
        hint: whether Ctrl-C says how to resume.
    """
    from batchhvd.views import terminal

    spec, live = found.refresh().spec, context.progress and bars
    with terminal.Follower(context.console(), ranks=spec.ranks, live=live) as follower:
        stream = found.stream(file, output=output, cursor=cursor, report=follower.say)
        try:
            if spec.preparation and file == "stdout.txt" and not cursor and _comes(found):
                follower.prepare(spec.preparation, found.stream_preparation(report=follower.say))
            for text in stream:
                follower.write(text)
        except KeyboardInterrupt:
            if hint:
                text = f"\nthe job continues; resume the log with --cursor {stream.cursor}"
                click.secho(text, fg="yellow", err=True)
            raise


def _comes(found: Job) -> bool:
    """Says whether a job's preparation runs or is still to run."""
    found.describe()  # looks
    return not found.is_prepared


def _end(found: Job) -> None:
    """Ends the program with the job's exit code."""
    from batchhvd.errors import JobFailedError

    try:
        found.wait("succeeded", timeout=60)
    except JobFailedError as error:
        end_as(found, error)


@job.command("metrics")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@formatted
@with_context
def metrics(context: CliContext, name: str, form: Format, **where: str) -> None:
    """Lists what the job NAME reported for each epoch."""
    found = context.experiment(**where).job(name).metrics()
    if form.chosen or not found:
        form.show(list(found))
        return
    from batchhvd.views import terminal

    printed(terminal.epochs(found))


@job.command("files")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@click.option("--output-directory", default="stdouterr", show_default=True, help="the directory's id")
@click.option("--folder", default=".", help="a folder in it")
@shown
@with_context
def files(context: CliContext, name: str, output_directory: str, folder: str, **where: str) -> Listing[FileEntry]:
    """Lists the files that the job NAME has written."""
    return context.experiment(**where).job(name).files(output_directory, folder)


@job.command("explain")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@shown
@with_context
def explain(context: CliContext, name: str, **where: str) -> Verdict:
    """Explains why the job NAME waits or failed, and what to do next."""
    return context.experiment(**where).job(name).explain().for_shell()


@job.command("export", short_help="Writes the job.json of the job NAME.")
@click.argument("name", shell_complete=completed("job"))
@click.argument("file", type=click.Path(dir_okay=False), default="-")
@scope(*_HERE)
@with_context
def export(context: CliContext, name: str, file: str, **where: str) -> None:
    """Writes the job.json of the job NAME, without keys and secrets, to FILE or to the terminal."""
    import json

    spec = context.experiment(**where).job(name).refresh().spec
    if file != "-":
        spec.write(file)
        return
    click.echo(json.dumps(spec.to_document(), indent=4, ensure_ascii=False))


@job.command("terminate")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@shown
@with_context
def terminate(context: CliContext, name: str, **where: str) -> Job:
    """Terminates the job NAME and waits until its ranks have ended."""
    return context.experiment(**where).job(name).terminate()


for verb in (
    job_inside.execute,
    job_inside.shell,
    job_inside.top,
    jobs.wait,
    jobs.cancel,
    jobs.download,
    jobs.replay,
    jobs.diff,
):
    job.add_command(verb)

common(
    job,
    _HERE,
    lambda context, name, **where: context.experiment(**where).job(name),
    lambda context, **where: context.experiment(**where).jobs(),
)
job.add_command(jobs.listed)  # instead of the common one
