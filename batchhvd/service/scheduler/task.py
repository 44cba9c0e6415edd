"""Turns the documents of a job and its cluster into the task that an engine runs. Pure: it touches no file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from batchhvd.engines.base import Launch, PreparationPlace, StallAction, Task
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts.model import MountPoint
from batchhvd.service.scheduler import container
from batchhvd.service.scheduler.layout import TaskLayout
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import ClusterProperties, JobProperties, SetupTask, TaskProperties
from batchhvd.service.store.job import StoredJob
from batchhvd.wire.facts import toolkits, vm_sizes
from batchhvd.wire.facts.containers import Containers
from batchhvd.wire.facts.documents import Document
from batchhvd.wire.facts.job_variables import (
    NUM_GPUS,
    RETRIES,
    STALL_ACTION,
    STALL_SECONDS,
    allowed,
    engine_options,
    interpreted,
)
from batchhvd.wire.facts.mount_roots import CLUSTER_ROOT, JOB_ROOT
from batchhvd.wire.facts.times import read_duration

FOLDERS = {JOB_ROOT: "mounts", CLUSTER_ROOT: "cluster"}
"""Where the mount roots lie in a task's folder."""

_PYTHON, _PROGRAMS = "BATCHHVD_PYTHON_FOLDER", "BATCHHVD_PROGRAMS"
SSH_CONFIG = "BATCHHVD_SSH_CONFIG"
"""The variable that names the configuration with which a job's nodes reach each other by ``ssh``."""
_IN_IMAGE = '"$(command -v python || command -v python3 || echo python)"'
LITERAL = (
    *(_PYTHON, _PROGRAMS, SSH_CONFIG, CLUSTER_ROOT, JOB_ROOT, "AZ_BATCHAI_JOB_NAME", "AZ_BATCHAI_SHARED_JOB_TEMP"),
    *("AZ_BATCHAI_MPI_HOST_FILE", "AZ_BATCHAI_NODE_LIST"),
)
"""The variables whose values the service writes and no node expands: a path may contain a dollar sign."""


@frozen
class Site:
    """What a service decides for all its jobs.

    Attributes:
        python: the interpreter of jobs that name none.
        prepare: where preparations run: ``"overlay"``, ``"host"`` or ``"skip"``.
        layers: absolute path of the directory of prepared layers, or "".
        options: the engine's own settings.
        directories: the directories of the machine that jobs may mount.
        containers: what it does with container images.
        programs: the folder of the programs that jobs find before all others, or "".
        equip: gives the nodes of a job what they reach each other with, by its folder, its cluster and their names; or
            None.
    """

    python: str
    prepare: str = PreparationPlace.OVERLAY
    layers: str = ""
    options: Mapping[str, str] = field(factory=dict)
    directories: Sequence[str] = ()
    containers: Containers = Containers()
    programs: str = ""
    equip: Callable[[Path, StoredCluster, Sequence[str]], None] | None = None


@frozen
class Attempt:
    """One attempt at a job.

    Attributes:
        folder: the task's folder.
        nodes: the names of the nodes it was given.
        attempt: from 1.
    """

    folder: Path
    nodes: tuple[str, ...]
    attempt: int = 1


def build(
    job: StoredJob, cluster: ClusterProperties, targets: Mapping[MountPoint, Path], attempt: Attempt, site: Site
) -> TaskLayout:
    """Returns the task of one attempt, with what it needs on the disk.

    Args:
        job: the job.
        cluster: the ``properties`` of its cluster.
        targets: the directory that each of the job's mounts leads to.
        attempt: where and on which nodes it runs.
        site: what the service decides.
    """
    properties = job.properties
    box = container.document(job, site.containers)
    start = start_of(properties)
    commands = _commands(start, _IN_IMAGE if box else _as_it_is(site.python))
    outputs = output_directories(job, targets, attempt.folder)
    variables = dict(_variables(job, cluster, attempt, site))
    task = Task(
        name=re.sub(r"[^\w.-]", "-", job.name, flags=re.ASCII),
        folder=str(attempt.folder),
        nodes=attempt.nodes,
        ranks=start.ranks,
        launch=start.launch,
        command=commands[next(iter(commands))],
        roles=tuple(role for node in start.roles for role in node) if start.launch == Launch.TENSORFLOW else (),
        commands=commands if start.launch == Launch.TENSORFLOW else {},
        script=start.script,
        preparation=_preparation(properties),
        prepare=site.prepare,
        layers=site.layers,
        environment=variables,
        literal=tuple(name for name in LITERAL if name not in _own(properties)),
        secrets=job.secrets,
        logs=str(outputs["stdouterr"]),
        notices=tuple(_notices(job, site)),
        wall_seconds=_wall_seconds(properties),
        attempt=attempt.attempt,
        options={**site.options, **engine_options(_own(properties))},
        container=box,
        stall_seconds=_stall_seconds(properties),
        stall_action=_stall_action(properties),
    )
    links = {attempt.folder / FOLDERS[mount.root] / mount.path: target for mount, target in targets.items()}
    return TaskLayout(task, links, tuple(outputs.values()))


def mounts_of(job: JobProperties, cluster: ClusterProperties) -> list[MountPoint]:
    """Returns the mounts of a job, including those of its cluster."""
    return mounts.every(job, cluster)


def output_directories(job: StoredJob, targets: Mapping[MountPoint, Path], folder: Path) -> dict[str, Path]:
    """Returns the path of each output directory by its id; ``stdouterr`` holds the logs.

    Args:
        job: the job.
        targets: the directory that each of its mounts leads to.
        folder: the task's folder, which holds what lies on no mount.

    Raises:
        ValueError: a prefix is on no mount, and not below the cluster's mount root; the message is the prefix.
    """
    properties, segment = job.properties, job.properties["jobOutputDirectoryPathSegment"]
    found = {"stdouterr": _written(properties["stdOutErrPathPrefix"], targets, folder) / segment / "stdouterr"}
    for entry in properties.get("outputDirectories", ()):
        place = mounts.output_place(segment, job.outputs, entry.get("pathSuffix", ""))
        found[entry["id"]] = _written(entry["pathPrefix"], targets, folder) / place
    return found


def _written(prefix: str, targets: Mapping[MountPoint, Path], folder: Path) -> Path:
    place = mounts.unmounted(prefix, list(targets))
    return _resolve(prefix, targets) if place is None else folder / FOLDERS[CLUSTER_ROOT] / place


def segments(properties: JobProperties, targets: Mapping[MountPoint, Path]) -> list[Path]:
    """Returns the directories that only this job writes to, one for each prefix that lies on a mount."""
    prefixes = [properties["stdOutErrPathPrefix"], *(e["pathPrefix"] for e in properties.get("outputDirectories", ()))]
    found = [locate(prefix, targets) for prefix in prefixes]
    segment = properties["jobOutputDirectoryPathSegment"]
    return list(dict.fromkeys(place / segment for place in found if place is not None))


def _resolve(path: str, targets: Mapping[MountPoint, Path]) -> Path:
    found = mounts.below(path, list(targets))
    if found is None:
        raise ValueError(path)
    mount, rest = found
    return targets[mount] / rest


def locate(path: str, targets: Mapping[MountPoint, Path]) -> Path | None:
    """Returns the path on the disk of a path below a mount root, None when it is on no mount."""
    try:
        return _resolve(path, targets)
    except ValueError:
        return None


def start_of(properties: JobProperties) -> toolkits.Start:
    """Returns how the processes of a job are started."""
    document: Document = {**properties}
    kind = toolkits.kind_of(document)
    return toolkits.start(kind, document[kind], properties["nodeCount"])


def script_of(properties: JobProperties) -> str:
    """Returns the path of the job's script with its variables, "" when it has none."""
    return start_of(properties).script


def process_count(properties: JobProperties) -> int:
    """Returns how many processes a job has."""
    return sum(start_of(properties).ranks)


def retries(properties: JobProperties) -> int | None:
    """Returns how often a job asks to be started again after a failure, None when it does not say."""
    value = interpreted(_own(properties)).get(RETRIES)
    return None if value is None else int(value)


def _commands(start: toolkits.Start, python: str) -> dict[str, str]:
    """Returns the command line of each role of a job."""
    if not start.programs:
        return {toolkits.RANK: protect(start.command)}
    return {role: program.line(python, quote, protect) for role, program in start.programs.items()}


def _preparation(properties: JobProperties) -> str | None:
    command = properties.get("jobPreparation", {}).get("commandLine")
    return None if command is None else protect(command)


def quote(path: str) -> str:
    """Quotes a path for a shell that still has to expand the variables in it."""
    return '"' + re.sub(r'(["\\`]|\$(?![\w{]))', r"\\\1", path) + '"'


def _as_it_is(path: str) -> str:
    """Quotes a path for a shell that must not expand anything in it."""
    return '"' + re.sub(r'(["\\`$])', r"\\\1", path) + '"'


_UNQUOTED = re.compile(
    r"""\\. | '[^']*' | "(?:\\.|[^"\\])*" | \$(?: (AZ_BATCHAI_\w+) | \{(AZ_BATCHAI_\w+)\} )""", re.VERBOSE | re.DOTALL
)


def protect(command: str) -> str:
    """Quotes each ``$AZ_BATCHAI_…`` of a command line that is outside quotes.

    Paths of Batch AI had no blanks, so these variables were never quoted; the path of the service's root may have some.
    """

    def replace(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return f'"${{{name}}}"' if name else found[0]

    return _UNQUOTED.sub(replace, command)


def _variables(job: StoredJob, cluster: ClusterProperties, attempt: Attempt, site: Site) -> Iterator[tuple[str, str]]:
    properties = job.properties
    size = vm_sizes.size(cluster["vmSize"])
    if container.document(job, site.containers) is None:  # an image has its own search path
        path = _path(site)
        if site.programs:  # before PATH, which refers to it
            yield _PROGRAMS, site.programs
            yield SSH_CONFIG, str(attempt.folder / "ssh" / "config")
            path["PATH"] = f"${{{_PROGRAMS}}}:{path['PATH']}"
        yield from path.items()
    yield "PYTHONUNBUFFERED", "1"
    yield "PYTHONFAULTHANDLER", "1"
    yield CLUSTER_ROOT, str(attempt.folder / FOLDERS[CLUSTER_ROOT])
    yield JOB_ROOT, str(attempt.folder / FOLDERS[JOB_ROOT])
    yield "AZ_BATCHAI_JOB_NAME", job.name
    yield "AZ_BATCHAI_SHARED_JOB_TEMP", str(attempt.folder / "shared")
    yield "AZ_BATCHAI_MPI_HOST_FILE", str(attempt.folder / "hostfile")
    yield "AZ_BATCHAI_NODE_LIST", ";".join(attempt.nodes)
    yield NUM_GPUS, str(size.gpus)
    if backend := properties.get("pyTorchSettings", {}).get("communicationBackend"):
        yield "AZ_BATCHAI_PYTORCH_BACKEND", str(backend).lower()
    segment = properties["jobOutputDirectoryPathSegment"]
    yield "AZ_BATCHAI_STDOUTERR_DIR", posixpath.join(properties["stdOutErrPathPrefix"], segment, "stdouterr")
    for entry in properties.get("inputDirectories", ()):
        yield f"AZ_BATCHAI_INPUT_{entry['id']}", entry["path"]
    for output in properties.get("outputDirectories", ()):
        place = mounts.output_place(segment, job.outputs, output.get("pathSuffix", ""))
        yield f"AZ_BATCHAI_OUTPUT_{output['id']}", posixpath.join(output["pathPrefix"], place)
    yield from ((name, value) for name, value in _own(properties).items() if not allowed(name, value))


def of_setup(setup: SetupTask, folder: Path, site: Site) -> dict[str, str]:
    """Returns the variables of a cluster's setup task."""
    own = {**_path(site), CLUSTER_ROOT: str(folder / FOLDERS[CLUSTER_ROOT])}
    return own | _own(setup)


def _path(site: Site) -> dict[str, str]:
    """Returns the search path, with the folder of the service's interpreter first, as it is."""
    folder = posixpath.dirname(site.python)
    return {_PYTHON: folder, "PATH": f"${{{_PYTHON}}}:$PATH"} if "$" in folder else {"PATH": f"{folder}:$PATH"}


def _own(properties: TaskProperties) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in properties.get("environmentVariables", ())}


def _stall_seconds(properties: JobProperties) -> float | None:
    return float(interpreted(_own(properties)).get(STALL_SECONDS, "600")) or None


def _stall_action(properties: JobProperties) -> str:
    stop = interpreted(_own(properties)).get(STALL_ACTION) == StallAction.STOP
    return StallAction.STOP if stop else StallAction.WARN


def _wall_seconds(properties: JobProperties) -> float:
    text = properties.get("constraints", {}).get("maxWallClockTime", "P7D")
    length = read_duration(text)
    if length is None:
        raise ValueError(f"{text!r} is not a duration")
    return length.total_seconds()


def _notices(job: StoredJob, site: Site) -> Sequence[str]:
    properties = job.properties
    found = [f"warning: {text}" for text in (*job.warnings, *toolkits.notes({**properties}))]
    for name, value in _own(properties).items():
        if wanted := allowed(name, value):
            found.append(f"warning: the variable {name} is ignored: it must be {wanted}, not {ascii(value[:40])}")
    notice = container.notice(properties, site.containers)
    return [*found, notice] if notice else found
