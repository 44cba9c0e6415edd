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
    """Says what is missing here, and how to mend it.

    Ends with exit code 1 where something is missing that the tutorial needs.
    """
    from batchhvd.cli import checkup as examination

    console = context.console(stderr=True)
    with console.status("examining …") if context.progress and console.is_terminal else nullcontext():
        findings = examination.examine()
    if form.chosen:
        form.show(findings)
    else:
        click.echo("\n".join(map(str, findings)))
    if not examination.healthy(findings):
        raise click.exceptions.Exit(1)
