"""What a job would do, said before anything is done: nodes, ranks, command, variables, files, and what looks odd.

``Experiment.plan_job`` gathers the facts and calls ``make``; nothing is created. The service itself reports what it
would reject, in a dry run; this module adds what only the client knows: the files on the shares, and what all of it
means.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from attrs import asdict, evolve, field, frozen

from batchhvd.spec.job import Horovod, JobSpec, Mount
from batchhvd.spec.toolkits import script_of, start_of
from batchhvd.wire.facts.causes import Remedy
from batchhvd.wire.facts.containers import Containers
from batchhvd.wire.facts.documents import Body
from batchhvd.wire.facts.mount_roots import JOB_ROOT
from batchhvd.wire.facts.toolkits import notes

ROOT = f"${JOB_ROOT}"

# Sizes that Batch AI offered and Azure has retired, with those that are nearest to them in price and speed of a GPU.
# Source: Azure's migration guides for NC, NC v2 and ND (2023) and for NC v3 (2025). The one for NV (2023) names NV v3,
# which is retired itself; the series after it is here.
_SUCCESSORS = {
    r"NC6": "NC4as_T4_v3",
    r"NC12": "NC16as_T4_v3",
    r"NC24R?": "NC64as_T4_v3",
    r"NC6S_V[23]": "NC24ads_A100_v4",
    r"NC12S_V[23]": "NC48ads_A100_v4",
    r"NC24R?S_V[23]": "NC96ads_A100_v4",
    r"ND6S": "NC4as_T4_v3",
    r"ND12S": "NC16as_T4_v3",
    r"ND24S": "NC64as_T4_v3",
    r"ND24RS": "ND96amsr_A100_v4",
    r"NV6": "NV6ads_A10_v5",
    r"NV12": "NV12ads_A10_v5",
    r"NV24": "NV36ads_A10_v5",
}


@frozen
class MountPlan:
    """A share as the job would see it.

    Attributes:
        path: where it is mounted.
        account, share: which share it is.
        found: whether account and share exist.
    """

    path: str
    account: str
    share: str
    found: bool


@frozen
class NodePlan:
    """What would run on one node.

    Attributes:
        index: its number in the job, from 0.
        ranks: the numbers of the ranks that it runs.
        variables: what its processes find in their environment, in addition to the node's own; without secrets.
    """

    index: int
    ranks: tuple[int, ...]
    variables: Mapping[str, str]


@frozen
class Plan:
    """What a job would do.

    Attributes:
        cluster: the cluster's name, whether it exists or not.
        vm_size: its kind of machine; "" if it does not exist.
        nodes: each node with its ranks and variables.
        launch: ``"horovod"``, ``"mpi"``, or ``"single"`` for a command that runs once.
        command: the command line of one rank; the node fills in its variables.
        preparation: the command line that runs on each node before, or None.
        preparation_place: where that will run, or that it is skipped; "" if the service does not say.
        logs: where the logs go, below the mount root.
        mounts: the shares, and whether they exist.
        problems: what would make it fail, a sentence each: first what the service rejects, then what the client sees.
        warnings: what deserves a second look.
        checked: whether the service has checked the job; only batchhvd's own can do so without creating it.
    """

    cluster: str
    vm_size: str
    nodes: tuple[NodePlan, ...]
    launch: str
    command: str
    preparation: str | None
    logs: str
    mounts: tuple[MountPlan, ...]
    problems: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())
    checked: bool = False
    preparation_place: str = ""
    _shell: tuple[str, ...] = field(default=(), repr=False, eq=False)

    def for_shell(self) -> Plan:
        """Returns the plan with its problems in commands of ``batchhvd`` instead of calls in Python."""
        return evolve(self, problems=self._shell)

    @property
    def ranks(self) -> int:
        """The total number of ranks."""
        return sum(len(node.ranks) for node in self.nodes)

    @property
    def good(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def to_document(self) -> Body:
        """Returns it as a dictionary of plain values."""
        return asdict(self, filter=lambda known, _: known.name != "_shell")

    def table(self) -> list[tuple[str, str]]:
        """Returns it as rows of a name and a text."""
        place = self.preparation_place
        return [
            ("cluster", f"{self.cluster} ({self.vm_size or 'does not exist'})"),
            ("nodes", str(len(self.nodes))),
            ("ranks", f"{self.ranks}: {_spread(self.nodes)}"),
            ("launch", self.launch),
            *([("preparation", self.preparation)] if self.preparation else []),
            *([("", f"runs {place}" if not place.startswith("skipped") else f"is {place}")] if place else []),
            ("command", self.command),
            ("logs", self.logs),
            *(("mount", _mount_text(mount)) for mount in self.mounts),
            *(("variable", f"{name}={value}") for name, value in self._variables()),
            *(("problem", text) for text in self.problems),
            *(("warning", text) for text in self.warnings),
        ]

    def __str__(self) -> str:
        """Returns it as text, one line for each row of the table."""
        return "\n".join(f"{name:<12} {text}" for name, text in self.table())

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self.table())
        return f"<table>{rows}</table>"

    def _variables(self) -> Sequence[tuple[str, str]]:
        return list(self.nodes[0].variables.items()) if self.nodes else []


class ServiceFacts(Protocol):
    """What a plan needs to know about the service.

    Attributes:
        cluster_name: the cluster that the job would run on, whether it exists or not.
        local: whether it is the service of this machine.
    """

    @property
    def cluster_name(self) -> str:
        """The name of the cluster that the job would run on."""

    @property
    def local(self) -> bool:
        """Whether it is the service of this machine."""

    @property
    def containers(self) -> Containers:
        """What it does with container images, once ``refusals`` was asked."""

    def refusals(self, spec: JobSpec, name: str) -> Sequence[str] | None:
        """Returns what the service would reject, a sentence each; None if it cannot say so without creating the job."""

    def cluster(self) -> tuple[str, str, int] | None:
        """Returns the cluster's name, VM size and the most nodes that it can have; None if it does not exist."""

    def preparation(self) -> str:
        """Returns where the job's preparation would run, "" if the service has not said it; after ``refusals``."""

    def has_share(self, mount: Mount) -> bool:
        """Says whether a mount's account and share exist."""

    def has_file(self, mount: Mount, path: str) -> bool | None:
        """Says whether a share has a file or directory; None if that is not known."""


def make(spec: JobSpec, name: str, survey: ServiceFacts) -> Plan:
    """Returns what a job would do.

    Args:
        spec: what the job consists of.
        name: the name it would have.
        survey: looks at the service.
    """
    known = survey.cluster()
    launch, command = _command(spec)
    mounts = tuple(MountPlan(m.path, m.account, m.share, survey.has_share(m)) for m in spec.mounts)
    refusals = survey.refusals(spec, name)
    if refusals is None:
        problems = [*_missing(spec, known, mounts), *_paths(spec, mounts, survey)]
    else:
        problems = [*_explained(refusals, spec, name, known, mounts), *_paths(spec, mounts, survey)]
    return Plan(
        cluster=survey.cluster_name,
        vm_size=known[1] if known else "",
        nodes=tuple(_nodes(spec, name, launch)),
        launch=launch,
        command=command,
        preparation=spec.preparation,
        logs=spec.logs,
        mounts=mounts,
        problems=tuple(problem.python for problem in problems),
        warnings=tuple(_warnings(spec, known, survey, checked=refusals is not None)),
        checked=refusals is not None,
        preparation_place=survey.preparation() if spec.preparation else "",
        shell=tuple(problem.shell for problem in problems),
    )


def _command(spec: JobSpec) -> tuple[str, str]:
    found = start_of(spec.task, spec.nodes)
    lines = dict.fromkeys(program.line("python") for program in found.programs.values())
    return found.launch, " | ".join(lines) or found.command


def _nodes(spec: JobSpec, name: str, launch: str) -> Iterator[NodePlan]:
    first, ranks = 0, spec.ranks
    for index, count in enumerate(start_of(spec.task, spec.nodes).ranks):
        yield NodePlan(index, tuple(range(first, first + count)), dict(_variables(spec, name, launch, ranks)))
        first += count


def _variables(spec: JobSpec, name: str, launch: str, ranks: int) -> Iterator[tuple[str, str]]:
    """Yields what is known beforehand; only the node knows where the mount root is.

    Source: the published description names the variables of mounts and directories.
    """
    yield "AZ_BATCHAI_JOB_NAME", name
    yield "AZ_BATCHAI_STDOUTERR_DIR", f"{spec.logs}/…/stdouterr"
    for directory in spec.inputs:
        yield f"AZ_BATCHAI_INPUT_{directory.id}", directory.path
    for output in spec.outputs:
        yield (
            f"AZ_BATCHAI_OUTPUT_{output.id}",
            posixpath.join(output.prefix, "…/outputs", output.suffix or "").rstrip("/"),
        )
    if launch == "horovod":
        yield "HOROVOD_SIZE", str(ranks)
    if launch == "pytorch":
        yield "WORLD_SIZE", str(ranks)
    yield from spec.environment.items()


_Known = tuple[str, str, int] | None
_CREATE_CLUSTER = Remedy("create it with workspace.create_cluster()", "create it with `batchhvd cluster create`")
_CREATE_SHARE = Remedy("create it with create_share()", "create it with `batchhvd share create`")
_RUN_AGAIN = Remedy(
    "submit it with rerun=True or replace=True, or under another name",
    "submit it with --rerun or --replace, or under another --name",
)


def _with(problem: str, remedy: Remedy) -> Remedy:
    """Returns a problem with what to do about it, in words for Python and for the command line."""
    return Remedy(f"{problem}: {remedy.python}", f"{problem}: {remedy.shell}")


def _explained(
    refusals: Sequence[str], spec: JobSpec, name: str, known: _Known, mounts: Sequence[MountPlan]
) -> Iterator[Remedy]:
    """Yields the service's refusals, with the call to make if the client knows it."""
    calls = {f"job {name!r} exists and has ended": _RUN_AGAIN}
    if known is None:
        calls["/properties/cluster/id"] = _CREATE_CLUSTER
    elif known[2] < spec.nodes:
        shell = f"`batchhvd cluster resize {known[0]} --target {spec.nodes}`"
        calls["/properties/nodeCount"] = Remedy(f"cluster.resize({spec.nodes})", shell)
    for index, mount in enumerate(mounts):
        if not mount.found:
            calls[f"/properties/mountVolumes/azureFileShares/{index}/"] = _CREATE_SHARE
    for text in refusals:
        call = next((call for pointer, call in calls.items() if text.startswith(pointer)), None)
        yield _with(text.rstrip("."), call) if call else Remedy(text, text)


def _missing(spec: JobSpec, known: _Known, mounts: Sequence[MountPlan]) -> Iterator[Remedy]:
    """Yields what is missing on a service that does not check the job itself."""
    if known is None:
        yield _with("the cluster does not exist", _CREATE_CLUSTER)
    for mount in mounts:
        if not mount.found:
            yield _with(f"share {mount.share!r} of account {mount.account!r} does not exist", _CREATE_SHARE)


def _paths(spec: JobSpec, mounts: Sequence[MountPlan], survey: ServiceFacts) -> Iterator[Remedy]:
    """Yields the files that the job names below its mounts and that do not exist."""
    found = {mount.path for mount in mounts if mount.found}
    there = [mount for mount in spec.mounts if mount.path in found]
    script = script_of(spec.task)
    named = {"script": script} if script else {}
    named.update({f"input {directory.id}": str(directory.path) for directory in spec.inputs})
    for what, path in named.items():
        mount, inside = locate(path, there)
        if mount is not None and survey.has_file(mount, inside) is False:
            then = Remedy("share.upload() it first", f"`batchhvd share upload {mount.share}` it first")
            yield _with(f"{what} {path}: share {mount.share!r} has no {inside!r}", then)


def locate(path: str, mounts: Sequence[Mount]) -> tuple[Mount | None, str]:
    """Returns the mount that a path of a job lies on and the path in its share; None for any other path."""
    inside = path_of(path)
    for mount in sorted(mounts, key=lambda mount: -len(mount.path)):
        if inside is not None and _below(inside, mount.path):
            return mount, inside[len(mount.path) :].lstrip("/")
    return None, ""


def path_of(text: str) -> str | None:
    """Returns what follows the job's mount root in a path; None for any other path."""
    for root in (ROOT, f"${{{JOB_ROOT}}}"):
        if text == root or text.startswith(root + "/"):
            return posixpath.normpath(text[len(root) :].strip("/") or ".")
    return None


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _warnings(spec: JobSpec, known: _Known, survey: ServiceFacts, *, checked: bool) -> Iterator[str]:
    yield from spec.warnings
    yield from notes({spec.task.wire: spec.task.to_document()})
    if not checked:
        yield "the service cannot check a job without creating it: what it would reject is not known"
    if survey.local:
        yield from _of_containers(spec)
    successor = _successor(known[1]) if known else ""
    if known and successor:
        yield f"{known[1]} is retired in Azure; its successor is Standard_{successor}. Here it is only a name"
    if spec.image and survey.local:
        here = survey.containers
        yield here.announcement(spec.image) if here.engine else here.notice(spec.image)
    if spec.ranks > 1 and isinstance(spec.task, Horovod) and re.search(r"--(lr|learning[-_]rate)\b", spec.task.args):
        yield (
            f"a learning rate is given and {spec.ranks} ranks share each step: the trainer multiplies it by the ranks; "
            "your own script has to do so itself"
        )


def _of_containers(spec: JobSpec) -> Iterator[str]:
    """Yields what a job that mounts containers may rely on here and could not with blobfuse."""
    for volume in spec.volumes:
        if volume.kind == "azureBlobFileSystems":
            name = volume.settings.get("containerName", volume.path)
            logs = ", the logs too" if _below(str(spec.logs), str(volume)) else ""
            yield (
                f"the container {name!r} is a directory here: files grow in it at once. Azure's blobfuse showed a file "
                f"when it was closed{logs}, and uploaded all of it again if it was appended to"
            )


def _successor(vm_size: str) -> str:
    short = vm_size.upper().removeprefix("STANDARD_")
    return next((new for old, new in _SUCCESSORS.items() if re.fullmatch(old, short)), "")


def _spread(nodes: Sequence[NodePlan]) -> str:
    counts = [len(node.ranks) for node in nodes]
    return f"{counts[0]} on each node" if len(set(counts)) == 1 else f"{', '.join(map(str, counts))} on the nodes"


def _mount_text(mount: MountPlan) -> str:
    there = "" if mount.found else " (does not exist)"
    return f"{ROOT}/{mount.path} is share {mount.share} of account {mount.account}{there}"
