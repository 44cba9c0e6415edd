"""``completion``: scripts that complete commands and options in a shell."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints the completion script of a shell.

    For bash: eval "$(batchhvd completion bash)"
    """
    from click.shell_completion import get_completion_class

    program = click.get_current_context().find_root().command

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(program, {}, "batchhvd", "_BATCHHVD_COMPLETE").source())
