"""``job exec``, ``job shell`` and ``cluster exec``: a command in a node; ``job top``: what the ranks use."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import click

from batchhvd.cli.frame.context import CliContext, scope, with_context
from batchhvd.cli.frame.names import completed
from batchhvd.cli.frame.printing import Format, formatted, printed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from batchhvd.resources.values.usage import Usage

_HERE = ("group", "workspace", "experiment")
_PIPE = 1000  # signs; a pipe has no width
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


@click.command(
    "exec", short_help="Runs COMMAND in a node of a cluster.", context_settings={"ignore_unknown_options": True}
)
@click.argument("name", shell_complete=completed("cluster"))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@scope("group", "workspace")
@click.option("--node", type=click.IntRange(0), default=0, show_default=True, help="the node's number")
@with_context
def in_cluster(context: CliContext, name: str, command: tuple[str, ...], node: int, **where: str) -> None:
    """Runs COMMAND in a node of the cluster NAME, and ends with its exit code.

    On a node that runs a job, it runs as in the job. Any other node has the cluster's mounts; on Slurm, only nodes of
    running jobs can be entered. Put -- before it: batchhvd cluster exec NAME --node 1 -- nvidia-smi
    """
    _become(context.workspace(**where).cluster(name).entrance(node, terminal=_is_terminal()), command)


@click.command("top", short_help="Shows what each rank of a running job uses, live.")
@click.argument("name", shell_complete=completed("job"))
@scope(*_HERE)
@click.option("--once", is_flag=True, help="one look, then end; so does a pipe")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="seconds between two looks"
)
@formatted
@with_context
def top(context: CliContext, name: str, once: bool, interval: float, form: Format, **where: str) -> None:
    """Shows the processors, memory and GPUs that each rank of the running job NAME uses, until it ends or Ctrl-C.

    CPU 100 % is one processor, all the time. Memory that several processes share counts in part.
    """
    looks = context.experiment(**where).job(name).usage(interval)
    if form.chosen:
        form.show(next(looks))
        return
    from rich.live import Live

    console = context.console()
    if once or not (context.progress and console.is_terminal):
        printed(_table(next(looks), console.width if console.is_terminal else _PIPE))
        return
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        for look in looks:
            live.update(_table(look, console.width), refresh=True)


def _table(look: Usage, width: int) -> RenderableType:
    """Returns a line for each rank, one for each GPU, and what could not be measured; no name is broken."""
    from rich.console import Group

    from batchhvd.views import terminal

    ranks = [
        {
            "rank": one.rank if one.rank >= 0 else "preparation",
            "CPU %": round(100 * one.cpu),
            "memory MB": round(one.memory / 1e6),
            "processes": one.processes,
            **({"GPUs": " ".join(map(str, one.gpus))} if look.gpus else {}),
            "node": one.node,
        }
        for one in look.ranks
    ]
    gpus = [
        {"GPU": one.gpu, "busy %": one.busy, "memory MB": round(one.memory / 1e6), "of MB": round(one.total / 1e6)}
        | {"node": one.node}
        for one in look.gpus
    ]
    missing = [f"not measured: {text}" for text in look.missing]
    tables = [terminal.rows(rows, terminal.fitting(rows, width)) for rows in (ranks, gpus) if rows]
    return Group(*tables, *missing)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _enter(context: CliContext, name: str, node: int, command: Sequence[str], **where: str) -> NoReturn:
    _become(context.experiment(**where).job(name).entrance(node, terminal=_is_terminal()), command)


def _become(entrance: Sequence[str], command: Sequence[str]) -> NoReturn:
    sys.stdout.flush()
    os.execvp(entrance[0], [*entrance, *command])  # signals and the terminal are the command's from here on
