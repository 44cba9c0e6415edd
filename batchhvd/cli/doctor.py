"""``doctor``: what is missing on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, with_context
from batchhvd.cli.frame.printing import Format, formatted

if TYPE_CHECKING:
    from batchhvd.cli.flows.checkup import CheckResult


@click.command()
@click.option("--quick", is_flag=True, help="do not try Horovod with two ranks, which takes a while")
@formatted
@with_context
def doctor(context: CliContext, quick: bool, form: Format) -> None:
    """Checks this machine: what is missing, and how to fix it.

    Ends with exit code 1 if anything that the tutorial needs is missing.
    """
    from batchhvd.cli.flows import checkup as examination

    results = []
    for result in _watched(context, examination.glance() if quick else examination.examine()):
        results.append(result)
        if not form.chosen:
            click.echo(str(result))
    if form.chosen:
        form.show(results)
    if not examination.healthy(results):
        raise click.exceptions.Exit(1)


def _watched(context: CliContext, checks: Iterable[CheckResult]) -> Iterator[CheckResult]:
    """Yields results as they come, and shows in a terminal that the next one is on its way."""
    console, waiting = context.console(stderr=True), iter(checks)
    while True:
        with console.status("checking …") if context.progress and console.is_terminal else nullcontext():
            result = next(waiting, None)
        if result is None:
            return
        yield result
