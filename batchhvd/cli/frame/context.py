"""What every command knows: which service, and which group, workspace and experiment."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TypeVar

import click

from batchhvd.cli.frame.names import completed

if TYPE_CHECKING:
    from rich.console import Console

    from batchhvd import Experiment, ResourceGroup, Session, StorageAccount, Workspace

Command = TypeVar("Command", bound=Callable[..., object])
_CLEARED = "\r\x1b[2K"


@contextmanager
def told() -> Iterator[None]:
    """Prints each warning on stderr as soon as it is given, a line each."""

    def tell(message: Warning | str, *_: object, **__: object) -> None:
        click.secho(f"warning: {message}", fg="yellow", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = tell
        yield


class CliContext:
    """The options before the command.

    Attributes:
        root: the local service's folder, or None for the default.
        endpoint: another service's URL, or None for the local one.
        subscription: the subscription's id, or None.
        progress: whether progress is shown if the output is a terminal.
        verbose: whether messages have whole ids instead of names.
    """

    def __init__(
        self,
        root: str | None = None,
        endpoint: str | None = None,
        subscription: str | None = None,
        *,
        progress: bool = True,
        verbose: bool = False,
    ) -> None:
        self.root, self.endpoint, self.subscription = root, endpoint, subscription
        self.progress, self.verbose = progress, verbose

    def session(self, engine: str | None = None) -> Session:
        """Returns a session; starts the local service if it does not run and no other endpoint is given.

        Args:
            engine: the local service's engine, or None for the one that runs, else the default.
        """
        import logging

        import batchhvd

        # What the Azure packages log before an error is in the error, or of no use to people.
        logging.getLogger("azure").addHandler(logging.NullHandler())
        if self.endpoint:
            return batchhvd.connect(self.endpoint, subscription=self.subscription)
        with told():
            return batchhvd.local(self.root, engine=engine)

    def console(self, *, stderr: bool = False) -> Console:
        """Returns the console for stdout or stderr."""
        from rich.console import Console

        return Console(stderr=stderr, highlight=False)

    def group(self, group: str) -> ResourceGroup:
        """Returns a handle to a group."""
        return self.session().group(group)

    def workspace(self, group: str, workspace: str) -> Workspace:
        """Returns a handle to a workspace."""
        return self.group(group).workspace(workspace)

    def experiment(self, group: str, workspace: str, experiment: str) -> Experiment:
        """Returns a handle to an experiment."""
        return self.workspace(group, workspace).experiment(experiment)

    def storage(self, group: str, account: str) -> StorageAccount:
        """Returns a handle to a storage account."""
        return self.group(group).storage_account(account)

    def report(self) -> Callable[[str], None] | None:
        """Returns a function that prints on stderr what a command is waiting for; None without a terminal."""
        return _tell if self.progress and self.console(stderr=True).is_terminal else None

    @contextmanager
    def live_report(self) -> Iterator[Callable[[str], None] | None]:
        """Yields what ``report`` returns, but each line takes the place of the one before, and the last one goes."""
        if self.report() is None:
            yield None
            return
        try:
            yield _tell_in_place
        finally:
            click.echo(_CLEARED, nl=False, err=True)


def _tell_in_place(line: str) -> None:
    width = get_terminal_size().columns - 1  # a line that wraps cannot be taken back
    click.secho(_CLEARED + line[:width], nl=False, dim=True, err=True)


def _tell(line: str) -> None:
    click.secho(line, dim=True, err=True)


def with_context(command: Callable[..., object]) -> Callable[..., object]:
    """Passes the options before a command to it as its first argument."""
    return click.make_pass_decorator(CliContext, ensure=True)(command)


def _scoping(
    short: str, name: str, variable: str, meaning: str, *, required: bool = True
) -> Callable[[Command], Command]:
    """Returns an option that says where a resource is; its names are completed."""
    return click.option(
        short,
        f"--{name}",
        required=required,
        envvar=variable,
        show_envvar=True,
        help=f"the {meaning}",
        shell_complete=completed(meaning.removeprefix("resource ")),
    )


_SCOPES = {
    "group": ("-g", "group", "BATCHHVD_GROUP", "resource group"),
    "workspace": ("-w", "workspace", "BATCHHVD_WORKSPACE", "workspace"),
    "experiment": ("-e", "experiment", "BATCHHVD_EXPERIMENT", "experiment"),
    "account": ("-a", "account", "AZURE_BATCHAI_STORAGE_ACCOUNT", "storage account"),
}


def scope(*names: str, required: bool = True) -> Callable[[Command], Command]:
    """Adds the options for the group, workspace, experiment or account to a command."""

    def give(command: Command) -> Command:
        for name in reversed(names):
            command = _scoping(*_SCOPES[name], required=required)(command)
        return command

    return give
