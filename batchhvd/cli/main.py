"""The command line: the verbs of the Python classes; prints tables for people, JSON for programs.

Exit codes: 0 done; 1 rejected or failed; 2 wrong arguments or a wrong file; 3 not found; 4 the service does not answer;
5 timed out; 130 interrupted. ``run``, ``job wait`` and ``job submit --follow`` end with the job's own exit code.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import click

from batchhvd._version import __version__
from batchhvd.cli import (
    cluster,
    compare,
    container,
    doctor,
    group,
    init,
    job,
    job_file,
    job_inside,
    jobs,
    script,
    service,
    settings,
    share,
    storage,
    sweep,
    tutorial,
    workspace,
)
from batchhvd.cli.frame.context import CliContext
from batchhvd.cli.frame.failure import shortened
from batchhvd.errors import (
    BatchHvdError,
    NotFoundError,
    ServiceError,
    SpecError,
    UnavailableError,
    WaitTimeoutError,
)

FAILED, WRONG, NOT_FOUND, UNAVAILABLE, TOO_LATE, INTERRUPTED = 1, 2, 3, 4, 5, 130
_CODES = ((NotFoundError, NOT_FOUND), (UnavailableError, UNAVAILABLE), (WaitTimeoutError, TOO_LATE), (SpecError, WRONG))


_MISSING = {"InvalidOutputDirectoryId"}  # a wrong name of something that a job may have


def _names_what_is_missing(error: ServiceError) -> bool:
    """Says whether a request was refused because a resource that it names does not exist."""
    return error.code == "InvalidField" and "which does not exist" in str(error)


class InOrder(click.Group):
    """A group of commands that lists them in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the commands' names."""
        return list(self.commands)


@click.group(
    cls=InOrder,
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
    context.obj = CliContext(root, endpoint, subscription, progress, verbose)


for command in (
    service.serve,
    service.status,
    service.prune,
    service.emulate,
    tutorial.tutorial,
    doctor.doctor,
    settings.config,
    init.init,
    script.run,
    job_file.plan,
    job_file.export,
    group.group,
    workspace.workspace,
    workspace.experiment,
    cluster.cluster,
    storage.storage,
    share.share,
    container.container,
    job.job,
    sweep.sweep,
    compare.compare,
):
    main_group.add_command(command)


for verb in (job_inside.execute, job_inside.shell, job_inside.top, jobs.listed, jobs.wait, jobs.cancel, jobs.download):
    job.job.add_command(verb)
cluster.cluster.add_command(job_inside.in_cluster)


@main_group.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Prints the completion script of a shell.

    For bash: eval "$(batchhvd completion bash)"
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(main_group, {}, "batchhvd", "_BATCHHVD_COMPLETE").source())


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and ends the program with its exit code; a user's mistake prints one line on stderr."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    # What the Azure packages log before an error is in the error, or of no use to people.
    logging.getLogger("azure").addHandler(logging.NullHandler())
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
    options = given[: next((at for at, word in enumerate(given) if word in main_group.commands), len(given))]
    return bool({"-v", "--verbose"} & set(options))


def code_of(error: BatchHvdError) -> int:
    """Returns the exit code that stands for an error."""
    if isinstance(error, ServiceError) and (error.code in _MISSING or _names_what_is_missing(error)):
        return NOT_FOUND
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
