"""Verbs for several jobs at once: ``job list``, ``wait``, ``cancel`` and ``diff``; ``download`` and ``replay``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.failure import end_as, say
from batchhvd.cli.frame.names import completed
from batchhvd.cli.frame.printing import Format, formatted, shown
from batchhvd.wire.facts.states import ENDED, JobState

if TYPE_CHECKING:
    from batchhvd import Experiment, Job
    from batchhvd.errors import JobFailedError
    from batchhvd.wire.facts.states import GoalWord

_HERE = ("group", "workspace", "experiment")
_AT_ONCE = 8  # jobs that are ended at the same time
RESULTS = "batchhvd-results"  # as for ``run``


@click.command("list")
@scope(*_HERE, required=False)
@click.option("--all", "everywhere", is_flag=True, help="of all experiments of all groups")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([str(state) for state in JobState]),
    help="in this state (repeatable)",
)
@shown
@with_context
def listed(
    context: CliContext,
    everywhere: bool,
    states: tuple[str, ...],
    group: str | None,
    workspace: str | None,
    experiment: str | None,
) -> list[object]:
    """Lists the jobs of an experiment, or all jobs."""
    if everywhere:
        found = [one for place in _experiments(context) for one in place.jobs()]
        chosen = [one for one in found if not states or one.state in states]
        return [{"place": _place(one), "name": one.name, **one._facts()} for one in chosen]
    where = {"group": group, "workspace": workspace, "experiment": experiment}
    missing = [name for name, value in where.items() if not value]
    if missing:
        raise click.UsageError(f"give --{missing[0]}, or --all for the jobs of all experiments")
    jobs = context.experiment(group or "", workspace or "", experiment or "").jobs()
    return [one for one in jobs if not states or one.state in states]


def _experiments(context: CliContext) -> Iterator[Experiment]:
    for group in context.session().groups():
        for workspace in group.workspaces():
            yield from workspace.experiments()


def _place(one: Job) -> str:
    return f"{one.group.name}/{one.workspace.name}/{one.experiment.name}"


@click.command("wait", short_help="Waits for jobs; ends with their exit code.")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", shell_complete=completed("job"))
@scope(*_HERE)
@click.option("--until", type=click.Choice(["running", "succeeded", "ended"]), default="succeeded", show_default=True)
@click.option("--timeout", type=click.FloatRange(0), help="seconds for all of them together (default: a week)")
@shown
@with_context
def wait(
    context: CliContext, names: tuple[str, ...], until: str, timeout: float | None, **where: str
) -> Job | list[Job]:
    """Waits for the jobs NAME…; ends with the exit code of the first of them that failed, in this order."""
    from batchhvd.errors import JobFailedError

    place = context.experiment(**where)
    end = None if timeout is None else time.monotonic() + timeout
    found: list[Job] = []
    failed: list[tuple[Job, JobFailedError]] = []
    for name in names:
        one = place.job(name)
        left = None if end is None else max(0.0, end - time.monotonic())
        try:
            found.append(one.wait(cast("GoalWord", until), timeout=left, report=context.report()))
        except JobFailedError as error:
            failed.append((one, error))
    for other, cause in failed[1:]:
        say(other, cause)
    if failed:
        end_as(*failed[0])
    return found[0] if len(found) == 1 else found


@click.command("cancel", short_help="Terminates jobs by name, or all of them.")
@click.argument("names", nargs=-1, metavar="NAME…", shell_complete=completed("job"))
@scope(*_HERE)
@click.option("--all", "everything", is_flag=True, help="all jobs of the experiment that have not ended")
@click.option("-y", "--yes", is_flag=True, help="with --all: do not ask")
@shown
@with_context
def cancel(context: CliContext, names: tuple[str, ...], everything: bool, yes: bool, **where: str) -> list[Job]:
    """Terminates the jobs NAME…, or all of an experiment, and waits until their ranks have ended."""
    if bool(names) == everything:
        raise click.UsageError("name the jobs, or give --all")
    place = context.experiment(**where)
    found = [one for one in place.jobs() if one.state not in ENDED] if everything else [place.job(one) for one in names]
    if everything and found and not yes:
        click.confirm(f"Terminate {', '.join(one.name for one in found)}?", abort=True, err=True)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda one: one.terminate(), found))


@click.command("download")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@click.option("--output-directory", default="RESULT", show_default=True, help="the directory's id; stdouterr: the logs")
@click.option("--to", type=click.Path(file_okay=False), help=f"the local folder (default: {RESULTS}/NAME)")
@with_context
def download(context: CliContext, name: str, output_directory: str, to: str | None, **where: str) -> None:
    """Copies what the job NAME has written to an output directory."""
    target = Path(to or Path(RESULTS, name))
    files = context.experiment(**where).job(name).download(target, output=output_directory)
    for file in files:
        click.echo(str(file))
    if not files:
        click.secho(f"job {name} has written nothing to {output_directory}", dim=True, err=True)


@click.command("replay", short_help="Runs the job NAME again and compares the weights.")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@click.option("--detach", is_flag=True, help="submit it and return; `job diff` compares the two later")
@with_context
def replay(context: CliContext, name: str, detach: bool, **where: str) -> None:
    """Runs the job NAME again as it was, and says whether the weights are the same, bit for bit.

    Ends with exit code 1 if they are not, or if that is not known.
    """
    found = context.experiment(**where).job(name).replay()
    for note in found.notes:
        click.secho(note, dim=True, err=True)
    click.secho(f"job {found.job.name} runs {name} again", dim=True, err=True)
    if detach:
        return
    verdict = found.wait(report=context.report())
    click.echo(f"{found.job.name}: {verdict}")
    if not verdict.same:
        raise click.exceptions.Exit(1)


@click.command("diff", short_help="Shows what differs between the runs FIRST and SECOND.")
@click.argument("first", shell_complete=completed("job"))
@click.argument("second", shell_complete=completed("job"))
@scope(*_HERE)
@formatted
@with_context
def diff(context: CliContext, first: str, second: str, form: Format, **where: str) -> None:
    """Shows what differs between the runs FIRST and SECOND: code, specification, data, packages, machine, results."""
    place = context.experiment(**where)
    found = place.job(first).difference(place.job(second))
    if form.chosen:
        form.show(found.rows())
    else:
        click.echo(str(found))
