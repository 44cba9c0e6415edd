"""``cluster``: create, show, list, resize, wait, explain, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchhvd.cli import job_inside
from batchhvd.cli.frame.context import CliContext, Command, scope, with_context
from batchhvd.cli.frame.names import completed
from batchhvd.cli.frame.printing import shown
from batchhvd.cli.frame.verb import Verbs, common

if TYPE_CHECKING:
    from batchhvd import AutoScale, Cluster, ClusterSpec, NodeLogin, Verdict


@click.group(cls=Verbs)
def cluster() -> None:
    """Clusters: nodes of one size that run jobs."""


def sized(command: Command) -> Command:
    """Adds the options for the number of nodes to a command."""
    command = click.option("--max", "maximum", type=click.IntRange(0), help="scale automatically up to this number")(
        command
    )
    command = click.option("--min", "minimum", type=click.IntRange(0), help="scale automatically down to this number")(
        command
    )
    return click.option("-t", "--target", "--nodes", "target", type=click.IntRange(0), help="the number of nodes")(
        command
    )


def nodes(target: int | None, minimum: int | None, maximum: int | None) -> int | AutoScale | None:
    """Returns the number of nodes or the limits that the options give; None if they give neither.

    Raises:
        click.UsageError: the options contradict one another.
    """
    from batchhvd import AutoScale

    if (minimum is None) != (maximum is None):
        raise click.UsageError("give both --min and --max")
    if minimum is None or maximum is None:
        return target
    if target is not None:
        raise click.UsageError("give either --target, or --min and --max")
    return AutoScale(minimum, maximum)


@cluster.command("create", short_help="Creates the cluster NAME, or shows it if it exists.")
@click.argument("name")
@scope("group", "workspace")
@click.option(
    "-f", "--config-file", type=click.Path(dir_okay=False), help="a cluster.json; the other options override it"
)
@click.option("-s", "--vm-size", help="the size of the machines, such as Standard_NC6")
@click.option(
    "--vm-priority",
    type=click.Choice(["dedicated", "lowpriority"]),
    help="dedicated, or lowpriority (cheaper, may be evicted)",
)
@click.option("-u", "--user-name", help="the administrator's name on the nodes")
@click.option("--ssh-key", help="the administrator's public key, or the path to its file")
@click.option(
    "--storage-account-name",
    envvar="AZURE_BATCHAI_STORAGE_ACCOUNT",
    help="replaces <AZURE_BATCHAI_STORAGE_ACCOUNT> in the file",
)
@click.option("--wait", is_flag=True, help="wait until the nodes are ready")
@sized
@shown
@with_context
def create(context: CliContext, name: str, group: str, workspace: str, wait: bool, **options: Any) -> Cluster:
    """Creates the cluster NAME, or shows it if it exists; does not wait for its nodes."""
    spec = _spec(**options)  # reports a mistake before a service is started
    made = context.workspace(group, workspace).create_cluster(name, spec)
    return made.wait(timeout=3600, report=context.report()) if wait else made


def _spec(
    config_file: str | None,
    vm_size: str | None,
    vm_priority: str | None,
    user_name: str | None,
    ssh_key: str | None,
    storage_account_name: str | None,
    **counts: int | None,
) -> ClusterSpec:
    from batchhvd import ClusterSpec
    from batchhvd.cli.frame.spec_file import spoken

    if not config_file and not vm_size:
        raise click.UsageError("vmSize is missing: give --vm-size, or a cluster.json with --config-file")
    given = {
        "vm_size": vm_size,
        "priority": vm_priority,
        "user": user_name,
        "ssh_key": _key(ssh_key) if ssh_key else None,
        "nodes": nodes(**counts),
    }
    if not config_file:
        return ClusterSpec.from_document({"properties": {}}, **given)
    return spoken(lambda: ClusterSpec.read(str(config_file), account=storage_account_name, **given))


def _key(text: str) -> str:
    import os
    from pathlib import Path

    try:
        return Path(os.path.expanduser(text)).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return text
    except (OSError, ValueError) as error:
        if " " in text:  # a key, which no system takes for the path of a file
            return text
        raise click.BadParameter(f"{text!r} cannot be read: {error}", param_hint="--ssh-key") from error


@cluster.command("resize", short_help="Changes the number of nodes of the cluster NAME.")
@click.argument("name", shell_complete=completed("cluster"))
@scope("group", "workspace")
@sized
@click.option("--wait", is_flag=True, help="wait until the nodes have been added or removed")
@shown
@with_context
def resize(
    context: CliContext,
    name: str,
    group: str,
    workspace: str,
    wait: bool,
    target: int | None,
    minimum: int | None,
    maximum: int | None,
) -> Cluster:
    """Changes the number of nodes of the cluster NAME; 0 frees all nodes and keeps the cluster."""
    wanted = nodes(target, minimum, maximum)
    if wanted is None:
        raise click.UsageError("give either --target, or --min and --max")
    resized = context.workspace(group, workspace).cluster(name).resize(wanted)
    return resized.wait(timeout=3600, report=context.report()) if wait else resized


@cluster.command("wait")
@click.argument("name", shell_complete=completed("cluster"))
@scope("group", "workspace")
@click.option("--timeout", type=click.FloatRange(0), help="seconds (default: a week)")
@shown
@with_context
def wait(context: CliContext, name: str, group: str, workspace: str, timeout: float | None) -> Cluster:
    """Waits until all nodes of the cluster NAME are ready."""
    found = context.workspace(group, workspace).cluster(name)
    return found.wait(timeout=timeout, report=context.report())


@cluster.command("nodes", short_help="Lists the nodes of the cluster NAME.")
@click.argument("name", shell_complete=completed("cluster"))
@scope("group", "workspace")
@shown
@with_context
def logins(context: CliContext, name: str, group: str, workspace: str) -> list[NodeLogin]:
    """Lists the nodes of the cluster NAME, with port and host key for ssh."""
    return context.workspace(group, workspace).cluster(name).logins()


@cluster.command("explain")
@click.argument("name", shell_complete=completed("cluster"))
@click.option("--node", help="explain this node only")
@scope("group", "workspace")
@shown
@with_context
def explain(context: CliContext, name: str, node: str | None, group: str, workspace: str) -> Verdict:
    """Explains the state of the cluster NAME, and what to do next."""
    return context.workspace(group, workspace).cluster(name).explain(node).for_shell()


cluster.add_command(job_inside.in_cluster)
common(
    cluster,
    ("group", "workspace"),
    lambda context, group, workspace, name: context.workspace(group, workspace).cluster(name),
    lambda context, group, workspace: context.workspace(group, workspace).clusters(),
)
