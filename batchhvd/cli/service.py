"""``serve``, ``status``, ``prune`` and ``emulate``: the local service, its contents, its file service alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchhvd.cli.frame.context import CliContext, with_context
from batchhvd.cli.frame.printing import shown
from batchhvd.cli.frame.verb import Verbs
from batchhvd.wire.facts.containers import CHOICES, VARIABLE

if TYPE_CHECKING:
    from batchhvd import Experiment, Job
    from batchhvd.wire.local_service import LocalService

NOT_RUNNING = 4
_AGE = re.compile(r"(\d{1,6})([hdw])", re.ASCII)
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_AT_ONCE = 8  # deletions that are under way at the same time


@click.command()
@click.option("--engine", default="processes", show_default=True, help="the engine that runs the jobs")
@click.option("--option", "engine_options", multiple=True, metavar="NAME=VALUE", help="an option of the engine")
@click.option(
    "--prepare",
    type=click.Choice(["overlay", "host", "skip"]),
    default="overlay",
    show_default=True,
    help="where job preparations run: in an overlay of this machine's files (root), on the machine itself, nowhere",
)
@click.option(
    "--allow-directory",
    "directories",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    metavar="PATH",
    help="a directory of this machine that jobs may mount, with all below it",
)
@click.option(
    "--containers",
    type=click.Choice(CHOICES),
    default="auto",
    show_default=True,
    envvar=VARIABLE,
    show_envvar=True,
    help="what runs the container images of jobs; auto: the first of the engines that is installed and runs, if any",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="the port (default: a free one)")
@click.option(
    "--idle", type=click.FloatRange(0), default=0, metavar="SECONDS", help="end after being idle for this long"
)
@click.option("--tls", is_flag=True, help="also serve https, and act as the proxy for Azure's host names")
@click.option("--recover", is_flag=True, help="put a damaged database aside, and start with what can be read from it")
@click.option("--detach", is_flag=True, help="return as soon as the service answers")
@click.option("--stop", is_flag=True, help="stop the running service")
@click.option("--new-token", is_flag=True, help="replace the service's token; the old one is refused from then on")
@with_context
def serve(
    context: CliContext,
    engine: str,
    engine_options: tuple[str, ...],
    prepare: str,
    directories: tuple[str, ...],
    containers: str,
    port: int,
    idle: float,
    tls: bool,
    recover: bool,
    detach: bool,
    stop: bool,
    new_token: bool,
) -> None:
    """Runs the local service until Ctrl-C.

    Its jobs continue when it ends, and the next service finds them.
    """
    from batchhvd.wire import local_service

    root = _root(context)
    if stop:
        click.echo("ended" if local_service.stop(root) else f"no service runs in {root}", err=True)
        return
    if new_token:
        _renew(root)
        return
    options = ["--engine", engine, "--prepare", prepare, "--port", str(port), "--idle", str(idle)]
    options += ["--containers", containers]
    options += [*(["--tls"] if tls else []), *(["--recover"] if recover else [])]
    options += [f"--option={setting}" for setting in engine_options]
    options += [f"--allow-directory={directory}" for directory in directories]
    process = local_service.start(root, *options, attached=not detach)
    try:
        _announce(process, root)
        code = 0 if detach else process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait(20)
        raise
    if code:
        raise click.exceptions.Exit(code)


def _renew(root: str) -> None:
    """Replaces the token: the running service heeds its file with the next request, so nothing is restarted."""
    from batchhvd.wire import local_service

    code = local_service.start(root, "--new-token", attached=True).wait()
    if code:
        raise click.exceptions.Exit(code)
    now = "the service that runs heeds it" if local_service.find(root) else "the next service will heed it"
    click.echo(f"{root} has a new token, and {now}; the old one opens nothing any more", err=True)


def _announce(process: subprocess.Popen[bytes], root: str) -> None:
    """Waits until the service answers, and prints its address."""
    from batchhvd.errors import UnavailableError
    from batchhvd.wire import local_service

    def answers() -> bool:
        found = local_service.find(root)
        if found and found.endpoint and found.pid == process.pid:
            click.echo(f"{found.endpoint}  engine {found.engine}, root {root}", err=True)
            return True
        if process.poll() is not None:
            raise click.exceptions.Exit(process.returncode)
        return False

    try:
        local_service.wait_started(process, root, answers)
    except UnavailableError:
        process.terminate()
        raise


def _root(context: CliContext) -> str:
    from batchhvd.wire.roots import resolved_root

    return resolved_root(context.root)


@click.command()
@click.option("--open", "page", is_flag=True, help="print the link to the status page, and open it from a terminal")
@shown
@with_context
def status(context: CliContext, page: bool) -> list[dict[str, str]] | None:
    """Lists the clusters and jobs of the local service.

    Starts nothing; ends with exit code 4 if no service runs. The link of --open works once, for five minutes.
    """
    from batchhvd.wire import local_service

    root = _root(context)
    found = local_service.find(root)
    if found is None:
        click.echo(f"no service runs in {root}; start it with `batchhvd serve`", err=True)
        raise click.exceptions.Exit(NOT_RUNNING)
    if page:
        _open(found)
        return None
    click.echo(
        f"{found.endpoint}  engine {found.engine}, process {found.pid}, since {found.started}, root {root}", err=True
    )
    return _inventory(context)


def _open(found: LocalService) -> None:
    """Prints the link to the page, and opens it in a browser if stdout is a terminal.

    The browser gets a file that redirects to the page, because every user of the machine can see its arguments, and
    could be the first to use the link.
    """
    from batchhvd.wire.connection import Connection
    from batchhvd.wire.facts.identity import SUBSCRIPTION
    from batchhvd.wire.page_link import page_link

    link = page_link(Connection(found.endpoint, SUBSCRIPTION, root=found.root))
    click.echo(link)
    if sys.stdout.isatty():
        import webbrowser

        webbrowser.open(_lead(Path(found.root) / "status.html", link).as_uri())


def _lead(path: Path, link: str) -> Path:
    """Writes a page that only its owner can read and that redirects to a link."""
    path.unlink(missing_ok=True)
    text = (
        f'<!doctype html><meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={link}">'
    )
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def _inventory(context: CliContext) -> list[dict[str, str]]:
    """Lists the clusters and jobs of all groups."""
    rows = []
    for group in context.session().groups():
        for workspace in group.workspaces():
            place = f"{group.name}/{workspace.name}"
            for cluster in workspace.clusters():
                how = {"state": cluster.state, "about": str(cluster.nodes)}
                rows.append({"kind": "cluster", "name": f"{place}/{cluster.name}", **how})
            for experiment in workspace.experiments():
                for job in experiment.jobs():
                    how = {"state": job.state, "about": "; ".join(map(str, job.errors))}
                    rows.append({"kind": "job", "name": f"{place}/{experiment.name}/{job.name}", **how})
    return rows


def _age(_context: click.Context, _parameter: click.Parameter, value: str | None) -> timedelta | None:
    found = None if value is None else _AGE.fullmatch(value)
    if value is not None and found is None:
        raise click.BadParameter(f"{value!r} is not an age such as 12h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else None


@click.command()
@click.option("--older", "age", callback=_age, metavar="AGE", help="jobs that ended longer ago than this: 12h, 30d, 8w")
@click.option(
    "--keep", type=click.IntRange(0), metavar="N", help="jobs other than the N that ended last in their experiment"
)
@click.option("--dry-run", is_flag=True, help="only list what would be deleted")
@with_context
def prune(context: CliContext, age: timedelta | None, keep: int | None, dry_run: bool) -> None:
    """Deletes finished jobs of all groups, with the folders that the service keeps for them.

    With both --older and --keep, a job is deleted only if both permit it. Output files on shares stay, but not the code
    that was kept for jobs which are gone (`job replay`).
    """
    from batchhvd.resources.studies.pruning import prune_code

    if age is None and keep is None:
        raise click.UsageError("say what to delete: --older AGE, --keep N, or both")
    before = None if age is None else datetime.now(timezone.utc) - age
    found = [job for experiment in _experiments(context) for job in _prunable(experiment, before, keep or 0)]
    for job in found if dry_run else ():
        ended = f"{job.ended:%Y-%m-%d %H:%M}" if job.ended else "at an unknown time"
        click.echo(
            f"{job.group.name}/{job.workspace.name}/{job.experiment.name}/{job.name}  {job.state}, ended {ended}"
        )
    if not dry_run:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda job: job.delete(), found))
    click.echo(f"{'would delete' if dry_run else 'deleted'} {len(found)} finished jobs", err=True)
    if not dry_run and (files := prune_code(context.session().groups())):
        click.echo(f"deleted {files} files of code that no remaining job has used", err=True)


def _experiments(context: CliContext) -> Iterator[Experiment]:
    for group in context.session().groups():
        for workspace in group.workspaces():
            yield from workspace.experiments()


def _prunable(experiment: Experiment, before: datetime | None, keep: int) -> list[Job]:
    """Returns an experiment's finished jobs that may go, the last to end first."""
    from batchhvd.wire.facts.states import ENDED

    ended = sorted((job for job in experiment.jobs() if job.state in ENDED), key=_end, reverse=True)
    return [job for job in ended[keep:] if before is None or _end(job) < before]


def _end(job: Job) -> datetime:
    """Returns when a job ended; one that does not say so ended long ago."""
    return job.ended or datetime.min.replace(tzinfo=timezone.utc)


@click.group(cls=Verbs)
def emulate() -> None:
    """Runs one part of the service for tests of other programs."""


@emulate.command("files", short_help="Serves Azure Files in the foreground until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="the address to listen on")
@click.option("--port", type=click.IntRange(0, 65535), default=10003, show_default=True, help="the port; 0: a free one")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, resolve_path=True),
    help="where to keep the shares (default: a temporary folder, deleted at the end)",
)
@click.option(
    "--accounts",
    envvar="AZURITE_ACCOUNTS",
    show_envvar=True,
    default="",
    metavar="NAME:KEY;…",
    help="the accounts (default: devstoreaccount1 with its published key)",
)
@click.option("--soft-delete-days", type=click.IntRange(0, 365), default=0, help="keep deleted shares for so long")
@click.option(
    "--sku",
    multiple=True,
    metavar="[ACCOUNT=]SKU",
    help="the SKU of a FileStorage account, such as Premium_LRS; repeat it",
)
@click.option("--silent", is_flag=True, help="print the connection strings only")
def emulate_files(
    host: str,
    port: int,
    folder: str | None,
    accounts: str,
    soft_delete_days: int,
    sku: tuple[str, ...],
    silent: bool,
) -> None:
    """Serves Azure Files in the foreground until Ctrl-C, and prints a connection string."""
    arguments = ["--host", host, "--port", str(port), "--soft-delete-days", str(soft_delete_days)]
    arguments += ["--folder", folder] if folder else []
    arguments += ["--accounts", accounts] if accounts else []
    arguments += [word for each in sku for word in ("--sku", each)]
    arguments += ["--silent"] if silent else []
    sys.stdout.flush()
    # In place of this process, which has loaded what the emulator does not need.
    os.execv(sys.executable, [sys.executable, "-m", "batchhvd.service.emulate", *arguments])
