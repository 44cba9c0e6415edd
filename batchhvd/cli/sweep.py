"""``sweep``: many jobs from one job.json, and how they stand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.printing import Format, formatted
from batchhvd.cli.frame.verb import Verbs
from batchhvd.cli.job import described

if TYPE_CHECKING:
    from batchhvd.resources.sweep import Sweep
    from batchhvd.sweeps import Dimension, Search, Space, Stopping
    from batchhvd.sweeps.space import Value


class _FileOrVerb(Verbs):
    """Verbs; what is none of them is a job file, for ``run``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the command that the arguments name, and its arguments."""
        known = args and (args[0] in self.commands or args[0].startswith("-"))
        return super().resolve_command(ctx, args if known else ["run", *args])


@click.group(cls=_FileOrVerb, subcommand_metavar="JOB_FILE [OPTIONS] | VERB")
def sweep() -> None:
    """Many jobs from one: `sweep JOB_FILE --set rate=0.1,0.01` runs a job for each combination of values.

    The job file says {rate} where a value goes: in the script's path, arguments, variables and directories.
    """


@sweep.command("run", short_help="Runs a job for each point, and waits.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("-n", "--name", help="the sweep's name (default: the file's)")
@click.option(
    "--set",
    "values",
    multiple=True,
    metavar="NAME=VALUES",
    help="values with commas between them; with --random and --optuna also uniform:LOW:HIGH, loguniform:… or integer:…",
)
@click.option("--random", "count", type=click.IntRange(1), help="so many points at random, not every combination")
@click.option("--optuna", "trials", type=click.IntRange(1), help="so many points that Optuna chooses; with --at-once")
@click.option("--metric", help="with --optuna: the metric that is made better; less is better of losses and errors")
@click.option("--seed", type=int, default=0, show_default=True, help="of the points drawn")
@click.option("--at-once", type=click.IntRange(1), help="how many jobs wait or run at once (default: all)")
@click.option(
    "--stop",
    metavar="RULE:METRIC",
    help="give up trials that are behind: asha:val_accuracy or median:val_accuracy; -METRIC where less is better",
)
@click.option("--detach", is_flag=True, help="submit what may run at once and return; not with --stop or --at-once")
@scope("group", "workspace", "experiment")
@described
@formatted
@with_context
def run(
    context: CliContext,
    file: str,
    name: str | None,
    values: tuple[str, ...],
    count: int | None,
    trials: int | None,
    metric: str | None,
    seed: int,
    at_once: int | None,
    stop: str | None,
    detach: bool,
    group: str,
    workspace: str,
    experiment: str,
    cluster: str,
    account: str | None,
    mounts: tuple[str, ...],
    form: Format,
) -> None:
    """Runs a job for each point and waits; the same command again goes on where it was interrupted.

    Ends with exit code 1 if a trial failed; trials that were given up do not count.
    """
    from batchhvd.cli.frame.spec_file import job_spec

    if detach and (stop or at_once):
        raise click.UsageError("--detach leaves nobody who gives up trials or submits the next ones; leave it out")
    if trials and (count or not metric):
        raise click.UsageError("--optuna needs --metric, and takes the place of --random")
    given = _values(values)
    space = _searched(given, trials, metric, seed) if trials and metric else _space(given, count, seed)
    rule = _rule(stop)
    spec = job_spec(context, file, group, account, mounts)
    on = context.workspace(group, workspace).cluster(cluster)
    place = context.experiment(group, workspace, experiment)
    made = place.sweep(name or Path(file).stem, spec, space, cluster=on, at_once=at_once, stop=rule)
    for missing in made.unplaced:
        said = f"warning: the job has no {{{missing}}}; the value is only in the variable PARAM_{missing.upper()}"
        click.secho(said, fg="yellow", err=True)
    _finished(made.submit() if detach else _run(context, made), form)


def _verb(command: Callable[..., object]) -> Callable[..., object]:
    """Gives a verb the sweep's name, its place and the options of printing."""
    placed = scope("group", "workspace", "experiment")(formatted(with_context(command)))
    return click.argument("name")(placed)


def _opened(context: CliContext, name: str, group: str, workspace: str, experiment: str) -> Sweep:
    return context.experiment(group, workspace, experiment).open_sweep(name)


@sweep.command("show")
@_verb
def show(context: CliContext, name: str, form: Format, **where: str) -> None:
    """Shows each trial of the sweep NAME."""
    form.show(_opened(context, name, **where).table())


@sweep.command("best")
@click.option("--metric", help="the metric, as the training names it (default: that of --stop)")
@click.option("--goal", type=click.Choice(["max", "min"]), help="(default: that of --stop, else by the name)")
@_verb
def best(context: CliContext, name: str, metric: str | None, goal: str | None, form: Format, **where: str) -> None:
    """Shows the best trial of the sweep NAME."""
    form.show(_opened(context, name, **where).best(metric, goal=goal).row())


@sweep.command("resume")
@_verb
def resume(context: CliContext, name: str, form: Format, **where: str) -> None:
    """Goes on with the sweep NAME where it was interrupted, and waits."""
    _finished(_run(context, _opened(context, name, **where)), form)


@sweep.command("retry")
@_verb
def retry(context: CliContext, name: str, form: Format, **where: str) -> None:
    """Runs the failed trials of the sweep NAME again, and waits."""
    found = _opened(context, name, **where)
    click.secho(f"{len(found.retry())} trials run again", dim=True, err=True)
    _finished(_run(context, found), form)


@sweep.command("stop")
@_verb
def stop_all(context: CliContext, name: str, form: Format, **where: str) -> None:
    """Ends all trials of the sweep NAME that run or wait."""
    form.show(_opened(context, name, **where).stop().table())


def _run(context: CliContext, found: Sweep) -> Sweep:
    with context.live_report() as report:
        return found.run(report=report)


def _finished(found: Sweep, form: Format) -> None:
    form.show(found.table())
    click.secho(found.describe(), dim=True, err=True)
    if any(trial.state == "failed" for trial in found):
        raise click.exceptions.Exit(1)


def _values(values: tuple[str, ...]) -> dict[str, list[Value] | Dimension]:
    given: dict[str, list[Value] | Dimension] = {}
    for text in values:
        name, equals, rest = text.partition("=")
        if not (name and equals and rest):
            raise click.BadParameter(f"{text!r} is not of the form NAME=VALUES", param_hint="--set")
        if name in given:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--set")
        given[name] = _dimension(rest) or [_value(one) for one in rest.split(",")]
    if not given:
        raise click.UsageError("a sweep needs values: --set rate=0.1,0.01")
    return given


def _searched(given: dict[str, list[Value] | Dimension], trials: int, metric: str, seed: int) -> Search:
    from batchhvd import sweeps

    return sweeps.optuna(trials, metric=metric, seed=seed, **given)  # type: ignore[arg-type]


def _space(given: dict[str, list[Value] | Dimension], count: int | None, seed: int) -> Space:
    from batchhvd import sweeps

    return sweeps.random(count, seed=seed, **given) if count else sweeps.grid(**given)  # type: ignore[arg-type]


def _dimension(text: str) -> Dimension | None:
    """Returns what ``loguniform:1e-4:0.1`` says; None for a list of values."""
    from batchhvd import sweeps

    kind, *bounds = text.split(":")
    if kind not in ("uniform", "loguniform", "integer"):
        return None
    try:
        if kind == "integer":
            low, high = map(int, bounds)
            return sweeps.integer(low, high)
        least, most = map(float, bounds)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not of the form {kind}:LOW:HIGH", param_hint="--set") from None
    return sweeps.uniform(least, most) if kind == "uniform" else sweeps.loguniform(least, most)


def _value(text: str) -> Value:
    """Returns a whole number or a real one where the text is exactly that, as it would be written again."""
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if repr(number) == text else text
    return text


def _rule(text: str | None) -> Stopping | None:
    from batchhvd import sweeps

    kind, _, metric = (text or "").partition(":")
    if not text:
        return None
    if kind not in ("asha", "median") or not metric.strip("-"):
        raise click.BadParameter(f"{text!r} is not asha:METRIC or median:METRIC", param_hint="--stop")
    goal, name = ("min", metric[1:]) if metric.startswith("-") else (None, metric)
    return sweeps.asha(name, goal=goal) if kind == "asha" else sweeps.median(name, goal=goal)
