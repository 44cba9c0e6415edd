"""A script on some nodes with one call: what is missing is made, the script's folder is uploaded, the job submitted."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchhvd.errors import SpecError
from batchhvd.resources.cluster import Cluster
from batchhvd.resources.job import RESULT, Job
from batchhvd.spec.cluster import AutoScale
from batchhvd.spec.job import Horovod, JobSpec, OutputDirectory
from batchhvd.transfer.code import CodeFolder, read_folder
from batchhvd.transfer.selection import targets

if TYPE_CHECKING:
    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.session import Session
    from batchhvd.resources.share import FileShare
    from batchhvd.resources.workspace import Workspace

GROUP, WORKSPACE, CLUSTER, ACCOUNT, SHARE = "batchhvd", "runs", "nodes", "batchhvdruns", "runs"
_VM_SIZE = "Standard_D4s_v3"  # only a name to a local service


def submit(
    session: Session,
    script: str | os.PathLike[str],
    *,
    nodes: int,
    args: Sequence[str],
    code: str | os.PathLike[str] | None,
    preparation: str,
) -> Job:
    """Submits a script; ``Session.run`` describes the arguments."""
    program, inside = _program(Path(script), Path(code) if code else Path(script).parent)
    place = workspace(session)
    on = cluster(place, nodes)
    target = share(place.group)
    mount = target.mount(SHARE)
    folder = upload(target, program)
    name = re.sub("[^A-Za-z0-9_-]+", "-", Path(script).stem).strip("-") or "run"
    spec = JobSpec(
        nodes=nodes,
        task=Horovod(script=mount / folder / inside, args=shlex.join(map(str, args))),
        mounts=[mount],
        logs=mount / "logs",
        outputs=[OutputDirectory(RESULT, mount / "logs", "result")],
        preparation=preparation or None,
    )
    return place.create_experiment(name).create_job(None, spec, cluster=on)


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


def workspace(session: Session) -> Workspace:
    """Returns the workspace for all runs."""
    return session.create_group(GROUP).create_workspace(WORKSPACE)


def cluster(place: Workspace, nodes: int) -> Cluster:
    """Returns the workspace's cluster for all runs, which grows with them."""
    found = place.cluster(CLUSTER)
    if not found.exists():
        return place.create_cluster(CLUSTER, vm_size=_VM_SIZE, nodes=nodes)
    most = found.target.maximum if isinstance(found.target, AutoScale) else found.target
    return found.resize(nodes) if most < nodes else found


def share(group: ResourceGroup) -> FileShare:
    """Returns the share for all runs of a group; the names of accounts are unique in a service."""
    own = "" if group.name == GROUP else hashlib.sha256(group.id.lower().encode()).hexdigest()[:10]
    return group.create_storage_account(f"{ACCOUNT}{own}").create_share(SHARE)


def upload(target: FileShare, program: CodeFolder) -> str:
    """Uploads a program into a folder that is named after its content, and returns that folder.

    So a run keeps its files while another version is uploaded, and what is there already is not sent again.
    """
    place = f"code/{program.digest}"
    target._send(targets(program.files, place, case_matters=target._connection.loopback))
    return place
