"""``doctor``: what is missing on this machine."""

from __future__ import annotations

from contextlib import nullcontext

import click

from batchhvd.cli.context import CliContext, with_context
from batchhvd.cli.printing import Format, formatted


@click.command()
@formatted
@with_context
def doctor(context: CliContext, form: Format) -> None:
    """Checks this machine: what is missing, and how to fix it.

    Ends with exit code 1 if anything that the tutorial needs is missing.
    """
    from batchhvd.cli import checkup as examination

    console = context.console(stderr=True)
    with console.status("examining …") if context.progress and console.is_terminal else nullcontext():
        results = examination.examine()
    if form.chosen:
        form.show(results)
    else:
        click.echo("\n".join(map(str, results)))
    if not examination.healthy(results):
        raise click.exceptions.Exit(1)
