"""``job exec`` and ``job shell``: a command in a node of a running job."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.names import completed

_HERE = ("group", "workspace", "experiment")
_SHELL = ["/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash -i; exec sh -i"]


@click.command(
    "exec", short_help="Runs COMMAND in a node of a running job.", context_settings={"ignore_unknown_options": True}
)
@click.argument("name", shell_complete=completed("job"))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@scope(*_HERE)
@click.option("--node", type=click.IntRange(0), default=0, show_default=True, help="the node's number")
@with_context
def execute(context: CliContext, name: str, command: tuple[str, ...], node: int, **where: str) -> None:
    """Runs COMMAND in a node of the running job NAME, and ends with its exit code.

    It has the files, the variables and the working user of the job's ranks there. Put -- before it:
    batchhvd job exec NAME --node 1 -- nvidia-smi
    """
    _enter(context, name, node, command, **where)


@click.command("shell")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@click.option("--node", type=click.IntRange(0), default=0, show_default=True, help="the node's number")
@with_context
def shell(context: CliContext, name: str, node: int, **where: str) -> None:
    """Opens a shell in a node of the running job NAME."""
    _enter(context, name, node, _SHELL, **where)


def _enter(context: CliContext, name: str, node: int, command: list[str] | tuple[str, ...], **where: str) -> NoReturn:
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = context.experiment(**where).job(name).entrance(node, terminal=terminal)
    sys.stdout.flush()
    os.execvp(words[0], [*words, *command])  # signals and the terminal are the command's from here on
