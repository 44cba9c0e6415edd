"""``python -m batchhvd.service.job_script --engine NAME < job.json``: a job file as a script, without a service."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from batchhvd.engines import base
from batchhvd.errors import EngineError
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts.model import MountPoint
from batchhvd.service.scheduler import task as environment
from batchhvd.service.scheduler.layout import TaskLayout
from batchhvd.service.scheduler.task import Attempt, Site
from batchhvd.service.store.documents import ClusterProperties, JobProperties
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Document, Record
from batchhvd.wire.facts.states import JobState

WRONG = 2


def script(format: str, document: Document, folder: Path) -> str:
    """Returns a job file as a script.

    Args:
        format: ``"slurm"`` or ``"horovodrun"``.
        document: the job file.
        folder: absolute path of the folder that the job will have; its last part is the job's name.

    Raises:
        EngineError: the format is unknown or cannot express the job, or the job's logs lie on no mount.
    """
    own = _plan(document, folder)
    return base.export(format, own.task, list(_notes(document["properties"], folder)))


def _plan(document: Document, folder: Path) -> TaskLayout:
    count = int(document["properties"]["nodeCount"])
    properties = {**document["properties"], "jobOutputDirectoryPathSegment": folder.name}
    record = Record(folder.name, "jobs", "", {"name": folder.name, "properties": properties}, _private(properties), 1)
    job, cluster = StoredJob(record, JobState.QUEUED), ClusterProperties(vmSize="")
    targets = {mount: _place(mount, folder) for mount in environment.mounts_of(job.properties, cluster)}
    names = tuple(f"node-{number}" for number in range(1, count + 1))
    try:
        return environment.build(job, cluster, targets, Attempt(folder, names), Site(sys.executable))
    except ValueError as error:
        raise EngineError(f"{error} lies on no share that the job mounts", engine="export") from None


def _private(properties: Document) -> Document:
    names = [entry["name"] for entry in properties.get("secrets", ())]
    return {"secrets": dict.fromkeys(names, ""), "outputs": mounts.OUTPUTS}


def _place(mount: MountPoint, folder: Path) -> Path:
    return folder / environment.FOLDERS[mount.root] / mount.path


def _notes(properties: JobProperties, folder: Path) -> Iterator[str]:
    """Yields what the script leaves to the person who runs it."""
    for mount in mounts.every(properties, {}):
        kind = "container" if mount.container else "share"
        what = f"the {kind} {mount.share} of the storage account {mount.account}" if mount.account else mount.share
        where = f"its directory {mount.inside}, " if mount.inside else ""
        if mount.unmanaged:
            what, where = f"the machine's directory {mount.inside}", ""
        yield f"put the files of {what}, {where}or a link to them, at {_place(mount, folder)}"
    volumes = properties.get("mountVolumes", {})
    for entry in volumes.get("unmanagedFileSystems", ()):
        if mounts.bound(entry["mountCommand"]) is None:
            yield f"what the job mounts with {entry['mountCommand']}"
    if "containerSettings" in properties:
        yield f"the container image {properties['containerSettings']['imageSourceRegistry']['image']}"


def main(arguments: list[str] | None = None) -> int:
    """Reads a job file from standard input, prints the script, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m batchhvd.service.job_script", description=(__doc__ or "")[3:])
    parser.add_argument("--engine", default="slurm", help="slurm or horovodrun (default: slurm)")
    parser.add_argument("--name", default="job", help="the job's name, which is also that of its folder")
    options = parser.parse_args(arguments)
    try:
        print(script(options.engine, json.load(sys.stdin), Path.cwd() / options.name), end="")
    except EngineError as error:
        print(error, file=sys.stderr)
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main())
