"""``scale``, ``job replay`` and ``job diff``: what several runs say together."""

from __future__ import annotations

from pathlib import Path

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.names import completed
from batchhvd.cli.frame.printing import Format, formatted
from batchhvd.cli.job import described

_HERE = ("group", "workspace", "experiment")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--ranks", default="1,2,4", show_default=True, help="numbers of ranks, one on each node")
@click.option("--seconds", type=float, default=20.0, show_default=True, help="the most that one measurement takes")
@click.option("--precision", type=float, default=0.03, show_default=True, help="of a step's time")
@click.option("-n", "--name", help="the jobs' name, before -scale-N (default: the file's)")
@scope(*_HERE)
@described
@formatted
@with_context
def scale(
    context: CliContext,
    file: str,
    ranks: str,
    seconds: float,
    precision: float,
    name: str | None,
    group: str,
    workspace: str,
    experiment: str,
    cluster: str,
    account: str | None,
    mounts: tuple[str, ...],
    form: Format,
) -> None:
    """Says how many ranks pay for the training that FILE, a job.json, describes.

    Runs it for some seconds on each number of ranks, one after another. The script trains with model.fit after
    hvd.init(); without a service, use python -m batchhvd.trainer scale.
    """
    from batchhvd.cli.frame.spec_file import job_spec

    try:
        sizes = [int(part) for part in ranks.split(",")]
    except ValueError:
        raise click.BadParameter(f"{ranks!r} is not a list of numbers such as 1,2,4", param_hint="--ranks") from None
    spec = job_spec(context, file, group, account, mounts)
    on = context.workspace(group, workspace).cluster(cluster)
    found = context.experiment(group, workspace, experiment).scale(
        spec,
        cluster=on,
        ranks=sizes,
        name=name or Path(file).stem,
        seconds=seconds,
        precision=precision,
        report=context.report(),
    )
    if form.chosen:
        form.show(found.to_document())
    else:
        click.echo(str(found))


@click.command("replay")
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


@click.command("diff")
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
