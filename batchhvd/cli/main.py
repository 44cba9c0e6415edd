"""The command line: the verbs of the Python classes; prints tables for people, JSON for programs.

Exit codes: 0 done; 1 rejected or failed; 2 wrong arguments or a wrong file; 3 not found; 4 the service does not answer;
5 timed out; 130 interrupted. ``run``, ``job wait`` and ``job submit --follow`` end with the job's own exit code.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import MutableMapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from batchhvd._version import __version__
from batchhvd.cli import settings
from batchhvd.cli.frame.context import CliContext
from batchhvd.errors import (
    BatchHvdError,
    NotFoundError,
    ServiceError,
    SpecError,
    UnavailableError,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

FAILED, WRONG, NOT_FOUND, UNAVAILABLE, TOO_LATE, INTERRUPTED = 1, 2, 3, 4, 5, 130
_CODES = ((NotFoundError, NOT_FOUND), (UnavailableError, UNAVAILABLE), (WaitTimeoutError, TOO_LATE), (SpecError, WRONG))


_MISSING = {"InvalidOutputDirectoryId"}  # a wrong name of something that a job may have


def _names_what_is_missing(error: ServiceError) -> bool:
    """Says whether a request was refused because a resource that it names does not exist."""
    return error.code == "InvalidField" and "which does not exist" in str(error)


# Each command: its module, its name there, and what the help says of it; the module is loaded when it is needed.
_COMMANDS = {
    "serve": ("service", "serve", "Runs the local service until Ctrl-C."),
    "status": ("service", "status", "Lists the clusters and jobs of the local service."),
    "prune": ("service", "prune", "Deletes finished jobs of all groups, with their folders."),
    "emulate": ("service", "emulate", "Runs one part of the service for tests of other programs."),
    "tutorial": ("tutorial", "tutorial", "Runs the whole Horovod tutorial."),
    "doctor": ("doctor", "doctor", "Checks this machine: what is missing, and how to fix it."),
    "config": ("settings", "config", "Lists the settings, with the place that each comes from."),
    "init": ("init", "init", "Writes a new project: a script, a job.json, a README.md."),
    "run": ("script", "run", "Runs SCRIPT on some nodes, and ends with its exit code."),
    "plan": ("job_file", "plan", "Checks what a job.json would do, without submitting it."),
    "export": ("job_file", "export", "Prints what an engine would run for a job.json."),
    "group": ("group", "group", "Resource groups: resources that are deleted together."),
    "workspace": ("workspace", "workspace", "Workspaces: clusters and experiments of one project."),
    "experiment": ("workspace", "experiment", "Experiments: jobs that belong together."),
    "cluster": ("cluster", "cluster", "Clusters: nodes of one size that run jobs."),
    "storage": ("storage", "storage", "Storage accounts: what file shares and containers of blobs lie in."),
    "share": ("share", "share", "File shares: files for both people and jobs."),
    "container": ("storage", "container", "Containers of blobs: files for both people and jobs."),
    "job": ("job", "job", "Jobs: submit, follow and understand them."),
    "sweep": ("sweep", "sweep", "Many jobs from one, a job for each combination of values."),
    "compare": ("compare", "compare", "Shows jobs side by side: what they tried, their metrics."),
    "scale": ("compare", "scale", "Says how many ranks pay, after short measured runs."),
    "completion": ("completion", "completion", "Prints the completion script of a shell."),
}


class LateGroup(click.Group):
    """A group whose commands are loaded when they are needed: the shell's completion waits for what is imported."""

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        """All commands, which this loads."""
        return {name: _loaded(name) for name in _COMMANDS}

    @commands.setter
    def commands(self, none: MutableMapping[str, click.Command]) -> None:
        assert not none

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands' names, in the table's order."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command, or None if there is none of this name."""
        return _loaded(cmd_name) if cmd_name in _COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands, none of which is loaded for that."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, _, summary) in _COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns the commands that begin so, or what any command completes."""
        from click.shell_completion import CompletionItem

        found = [(name, row[2]) for name, row in _COMMANDS.items() if name.startswith(incomplete)]
        own = [CompletionItem(name, help=summary) for name, summary in found]
        return own + click.Command.shell_complete(self, ctx, incomplete)


def _loaded(name: str) -> click.Command:
    module, attribute, _ = _COMMANDS[name]
    found = getattr(import_module(f"batchhvd.cli.{module}"), attribute)
    assert isinstance(found, click.Command)
    return found


@click.group(
    cls=LateGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 rejected or failed, 2 wrong arguments or file, 3 not found, 4 no answer, "
    "5 timed out, 130 interrupted. run, job wait and job submit --follow end with the job's own.",
)
@click.version_option(__version__, prog_name="batchhvd")
@click.option("--root", envvar="BATCHHVD_ROOT", show_envvar=True, help="the local service's folder")
@click.option("--endpoint", envvar="BATCHHVD_ENDPOINT", show_envvar=True, help="the URL of another service")
@click.option(
    "--subscription",
    envvar="AZURE_SUBSCRIPTION_ID",
    show_envvar=True,
    help="the subscription's id, for another service",
)
@click.option(
    "--progress/--no-progress",
    default=True,
    envvar="BATCHHVD_PROGRESS",
    show_envvar=True,
    help="show progress in a terminal",
)
@click.option("-v", "--verbose", is_flag=True, help="messages have whole resource ids instead of names")
@click.pass_context
def main_group(
    context: click.Context,
    root: str | None,
    endpoint: str | None,
    subscription: str | None,
    progress: bool,
    verbose: bool,
) -> None:
    """Batch AI's resources, jobs and Horovod tutorial, on this machine or on a cluster."""
    set_here = click.core.ParameterSource.COMMANDLINE, click.core.ParameterSource.ENVIRONMENT
    if context.get_parameter_source("root") in set_here and context.get_parameter_source("endpoint") not in set_here:
        endpoint = None  # the one of the settings is another service
    context.obj = CliContext(root, endpoint, subscription, progress=progress, verbose=verbose)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and ends the program with its exit code; a user's mistake prints one line on stderr."""
    _start_light()
    sys.exit(run(arguments))


def _start_light() -> None:
    """Leaves out what costs a short program a quarter of its time and gives it nothing.

    The storage package imports aiohttp if it is installed, for asynchronous clients, which no command has. And of the
    many objects that imports make, hardly any is garbage.
    """
    sys.modules.setdefault("aiohttp", None)  # type: ignore[arg-type]  # so Python documents it: not to be imported
    gc.set_threshold(50_000, 20, 50)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    try:
        defaults = settings.defaults(main_group)
        code = main_group.main(arguments, prog_name="batchhvd", standalone_mode=False, default_map=defaults)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.secho("interrupted", fg="yellow", err=True)
        return INTERRUPTED
    except BatchHvdError as error:
        from batchhvd.cli.frame.failure import shortened

        text = error.shell or str(error)
        click.secho(f"batchhvd: {text if _is_verbose(arguments) else shortened(text)}", fg="red", err=True)
        return code_of(error)
    except OSError as error:  # of a file that the command line names; the service's are among those above
        place = f" {error.filename}" if error.filename else ""
        click.secho(f"batchhvd: cannot use{place}: {error.strerror or error}", fg="red", err=True)
        return FAILED
    return code if isinstance(code, int) else 0


def _is_verbose(arguments: Sequence[str] | None) -> bool:
    """Says whether -v stands before the command."""
    given = sys.argv[1:] if arguments is None else arguments
    options = given[: next((at for at, word in enumerate(given) if word in _COMMANDS), len(given))]
    return bool({"-v", "--verbose"} & set(options))


def code_of(error: BatchHvdError) -> int:
    """Returns the exit code that stands for an error."""
    if isinstance(error, ServiceError) and (error.code in _MISSING or _names_what_is_missing(error)):
        return NOT_FOUND
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
