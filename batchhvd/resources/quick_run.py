"""A script on some nodes with one call: what is missing is made, the script's folder is uploaded, the job submitted."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from attrs import evolve

from batchhvd.errors import NotFoundError, SpecError
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.job import RESULT, Job
from batchhvd.resources.storage_account import find_account
from batchhvd.spec.cluster import AutoScale
from batchhvd.spec.job import Horovod, InputDirectory, JobSpec, OutputDirectory, PyTorch
from batchhvd.transfer.code import CodeFolder, read_folder
from batchhvd.transfer.selection import targets
from batchhvd.wire import configuration
from batchhvd.wire.facts.job_variables import ORIGIN

if TYPE_CHECKING:
    from batchhvd.resources.experiment import Experiment
    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.session import Session
    from batchhvd.resources.share import FileShare
    from batchhvd.resources.workspace import Workspace

ACCOUNT = "batchhvdruns"
MOUNT = "runs"
"""Where the share is mounted, whatever its name is."""
CODE = "CODE"
"""The id of the input directory that holds a spec's code."""

_TOOLKITS = {"horovod": Horovod, "pytorch": PyTorch}
T = TypeVar("T", Horovod, PyTorch)
_VM_SIZE = "Standard_D4s_v3"  # only a name to a local service


def submit(
    session: Session,
    script: str | os.PathLike[str],
    *,
    nodes: int,
    args: Sequence[str],
    code: str | os.PathLike[str] | None,
    preparation: str,
    environment: str | os.PathLike[str] | None,
    toolkit: str,
) -> Job:
    """Submits a script; ``Session.run`` describes the arguments."""
    if toolkit not in _TOOLKITS:
        allowed = " or ".join(repr(name) for name in _TOOLKITS)
        raise SpecError(f"the toolkit must be {allowed}, not {toolkit!r}", remedy="describe the job in a JobSpec")
    check_requirements(environment)
    program, inside = _program(Path(script), Path(code) if code else Path(script).parent)
    name = re.sub("[^A-Za-z0-9_-]+", "-", Path(script).stem).strip("-") or "run"
    place = experiment(session, name)
    on = cluster(place.workspace, nodes)
    target = share(place.group)
    mount = target.mount(MOUNT)
    folder = upload(target, program)
    task = _TOOLKITS[toolkit](script=mount / folder / inside, args=shlex.join(map(str, args)))
    spec = JobSpec(
        nodes=nodes,
        task=in_environment(target, task, environment),
        mounts=[mount],
        logs=mount / "logs",
        outputs=[OutputDirectory(RESULT, mount / "logs", "result")],
        preparation=preparation or None,
        environment={ORIGIN: f"run {script}"},
    )
    return place.create_job(None, spec, cluster=on)


def placed(group: ResourceGroup, spec: JobSpec) -> JobSpec:
    """Uploads what a spec names of this machine, to the share for all runs, and returns the spec that names it there.

    Args:
        group: the group of the job.
        spec: the spec; one without ``code`` and ``requirements`` is returned as it is.

    Raises:
        SpecError: the folder does not have the script, or the task is none that runs in an environment.
    """
    if not spec._is_here:
        return spec
    check_requirements(spec.requirements)
    task = spec.task
    program = read_folder(Path(spec.code)) if spec.code else None
    inside = str(getattr(task, "script", ""))
    is_inside = bool(inside) and not inside.startswith(("$", "/"))
    if program and is_inside and inside not in program.files:
        problem = f"the folder {str(spec.code)!r} has no file {inside!r}, or .gitignore or .batchhvdignore excludes it"
        raise SpecError(problem, remedy="give the script's path in that folder")
    if spec.requirements is not None and not isinstance(task, (Horovod, PyTorch)):
        problem = f"a {type(task).__name__} does not run in an environment of requirements"
        raise SpecError(problem, remedy="give Horovod(…) or PyTorch(…), or install them in the preparation")
    target = share(group)
    mount = target.mount(MOUNT)
    if program:
        folder = mount / upload(target, program)
        inputs = [*spec.inputs, InputDirectory(CODE, folder)]
        task = evolve(cast("Horovod", task), script=folder / inside) if is_inside else task  # whichever has a script
        spec = evolve(spec, inputs=inputs, logs=spec.logs or mount / "logs")
    if spec.requirements is not None:
        task = in_environment(target, cast("Horovod", task), spec.requirements)  # or PyTorch, as was checked
    others = [one for one in spec.mounts if one.path != MOUNT]
    return evolve(spec, task=task, mounts=[*others, mount], code=None, requirements=None)


def check_requirements(environment: str | os.PathLike[str] | None) -> None:
    """Checks that the file of an environment's requirements is there, and that it needs no other local file.

    Raises:
        SpecError: it is not.
    """
    if environment is None:
        return
    path = Path(environment)
    if not path.is_file():
        raise SpecError(f"there is no file {str(path)!r} here", remedy="give a file of requirements, as pip reads it")
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.match(r"\s*(-r|-c|-e|--requirement|--constraint|--editable|\.{0,2}/)", line):
            problem = f"{path}: {line.strip()!r} is a file of this machine, which the nodes do not have"
            raise SpecError(problem, remedy="write the packages themselves, by name and version")


def in_environment(target: FileShare, task: T, environment: str | os.PathLike[str] | None) -> T:
    """Returns a task that runs in a virtual environment, and uploads what makes it.

    Args:
        target: the share for all runs.
        task: what runs there.
        environment: the file of requirements, or None for the node's own Python.
    """
    if environment is None:
        return task
    from batchhvd.functions import in_environment as maker_of_environments  # late: few runs have one
    from batchhvd.functions import packing

    maker, requirements = Path(maker_of_environments.__file__), Path(environment)
    digest = packing.digest_of({"requirements.txt": requirements, "maker": maker})
    place = f"environments/{digest}"
    target._send([(requirements, f"{place}/requirements.txt"), (maker, f"{place}/in_environment.py")])
    mount = target.mount(MOUNT)
    args = f'"{mount / place}/requirements.txt" "{task.script}" {task.args}'
    return evolve(task, script=mount / place / "in_environment.py", args=args.strip())


def _program(path: Path, folder: Path) -> tuple[CodeFolder, str]:
    """Returns what is uploaded, and the script's path in it."""
    if not path.is_file():
        raise SpecError(f"there is no file {str(path)!r} here", remedy="give the path of a Python script")
    try:
        inside = path.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise SpecError(f"{path} is not below {folder}", remedy="give the folder that holds the script") from None
    program = read_folder(folder)
    if inside not in program.files:
        raise SpecError(f"{path} is excluded by .gitignore or .batchhvdignore", remedy="take it out of that file")
    return program, inside


def experiment(session: Session, name: str) -> Experiment:
    """Returns the experiment for runs of one name, in the group and workspace that the settings name.

    Args:
        session: the way to the service.
        name: its name, unless the settings name one.
    """
    settings = configuration.read()
    place = session.create_group(settings.text("group")).create_workspace(settings.text("workspace"))
    return place.create_experiment(settings.text("experiment") or name)


def cluster(place: Workspace, nodes: int) -> Cluster:
    """Returns the workspace's cluster for all runs. It grows with them; one that the settings name does not.

    Raises:
        SpecError: the cluster that the settings name has fewer nodes.
    """
    settings = configuration.read()
    found = place.cluster(settings.text("cluster"))
    if not found.exists():
        return place.create_cluster(found.name, vm_size=_VM_SIZE, nodes=nodes)
    most = found.target.maximum if isinstance(found.target, AutoScale) else found.target
    named = settings.settings.get("cluster")
    if most < nodes and named:
        problem = f"cluster {found.name!r} has at most {most} nodes, and the job needs {nodes}"
        raise SpecError(
            f"{problem} ({named.source} names the cluster)", remedy=f"resize it, or run on {most} nodes or fewer"
        )
    return found.resize(nodes) if most < nodes else found


def share(group: ResourceGroup) -> FileShare:
    """Returns the share for all runs of a group; the names of accounts are unique in a service."""
    settings = configuration.read()
    if named := settings.text("account"):
        try:
            return find_account(group, named).create_share(settings.text("share"))
        except NotFoundError:
            return group.create_storage_account(named).create_share(settings.text("share"))
    usual = group.name == configuration.DEFAULTS["group"]
    own = "" if usual else hashlib.sha256(group.id.lower().encode()).hexdigest()[:10]
    return group.create_storage_account(f"{ACCOUNT}{own}").create_share(settings.text("share"))


def upload(target: FileShare, program: CodeFolder) -> str:
    """Uploads a program into a folder that is named after its content, and returns that folder.

    So a run keeps its files while another version is uploaded, and what is there already is not sent again.
    """
    place = f"code/{program.digest}"
    target._send(targets(program.files, place, case_matters=target._connection.loopback))
    return place
