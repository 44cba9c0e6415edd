"""Lists a job's output files, each with a link that opens it without a key for a limited time."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from attrs import frozen

from batchhvd.errors import BadRequestError
from batchhvd.service.batchai.kinds import named
from batchhvd.service.http import paging
from batchhvd.service.http.exchange import Answer, Ask, Here
from batchhvd.service.mounts import model as mounts
from batchhvd.service.store import accounts
from batchhvd.service.store.cluster import StoredCluster
from batchhvd.service.store.documents import JobProperties, OutputEntry
from batchhvd.service.store.job import StoredJob
from batchhvd.service.store.records import Document
from batchhvd.wire.facts.hosts import BLOB_DOMAIN, FILE_DOMAIN
from batchhvd.wire.facts.times import write_moment

RECORDS = "batchhvd"
"""The id of the folder that holds the logs of a job, and beside them the records of its run."""
_READ = 1001  # names that are read at once: one more than a page has


@frozen
class Folder:
    """A directory on a share or in a container.

    Attributes:
        account, share: the share or container.
        path: the directory's place in the share, "" for the share itself.
        top: the share's directory in the file system.
        container: whether it is a container of blobs.
    """

    account: str
    share: str
    path: str
    top: Path
    container: bool = False


@frozen
class ListedFile:
    """One file or directory of a folder.

    Attributes:
        folder: where it is.
        name: its name there.
        facts: what the system knows of it.
    """

    folder: Folder
    name: str
    facts: os.stat_result


def list_files(here: Here, ask: Ask) -> Answer:
    """Lists one directory of a job's output directory; the list is empty until the job has made it."""
    folder = _folder(
        here, StoredJob.of(named(here, ask, "jobs")), ask.query["outputdirectoryid"], ask.query["directory"]
    )
    if folder is None:
        return paging.found(ask, lambda after, most: [], str, str)
    link = _links(here, ask, folder, here.now() + 60 * int(ask.query["linkexpiryinminutes"]))

    def fetch(after: str, most: int) -> list[ListedFile]:
        return list(islice(_entries(here, folder, after), most))

    return paging.found(ask, fetch, lambda entry: entry.name, lambda entry: _show(entry, link))


def output_directory(here: Here, job: StoredJob, id: str) -> tuple[str, str, str, bool] | None:
    """Returns account, share and path of a job's output directory, and whether the share is a container of blobs.

    ``stdouterr`` holds its logs; ``batchhvd``, which only this service knows, is the folder around it with the records
    of the run, unless the job has an output directory of that id.

    Returns None when the mount that it is on does not exist any more.

    Raises:
        BadRequestError: 400, the job has no output directory of this id.
    """
    properties = job.properties
    segment = properties["jobOutputDirectoryPathSegment"]
    if id == "stdouterr":
        prefix, place = properties["stdOutErrPathPrefix"], f"{segment}/stdouterr"
    elif id == RECORDS and all(entry["id"] != RECORDS for entry in properties.get("outputDirectories", ())):
        prefix, place = properties["stdOutErrPathPrefix"], segment
    else:
        entry = _output(properties, id)
        prefix, place = entry["pathPrefix"], mounts.output_place(segment, job.outputs, entry.get("pathSuffix", ""))
    return _place(here, properties, f"{prefix.rstrip('/')}/{place}")


def _output(properties: JobProperties, id: str) -> OutputEntry:
    outputs = {entry["id"]: entry for entry in properties.get("outputDirectories", ())}
    if id not in outputs:
        known = ", ".join(["stdouterr", *outputs])
        raise BadRequestError(
            f"The job has no output directory '{id}'; it has: {known}.",
            code="InvalidOutputDirectoryId",
            target="outputdirectoryid",
        )
    return outputs[id]


def _place(here: Here, properties: JobProperties, path: str) -> tuple[str, str, str, bool] | None:
    cluster = here.store.get(properties["cluster"]["id"])
    found = mounts.locate(path, mounts.every(properties, StoredCluster.of(cluster).properties if cluster else {}))
    if found is None:
        return None
    mount, rest = found
    if mount.account:
        return mount.account, mount.share, rest, mount.container
    server = here.store.get(mount.share)
    return None if server is None else (*accounts.share_of(server), rest, False)


def _folder(here: Here, job: StoredJob, id: str, directory: str) -> Folder | None:
    place = output_directory(here, job, id)
    if not mounts.inside(directory):
        raise BadRequestError(
            "directory must be a relative path that stays inside the output directory.",
            code="InvalidField",
            target="directory",
        )
    top = here.storage(container=place[3]).directory(place[0], place[1]) if place else None
    if place is None or top is None:
        return None
    path = posixpath.normpath(posixpath.join(place[2], directory)).strip("/")
    return Folder(place[0], place[1], path, top, place[3])


def _entries(here: Here, folder: Folder, after: str) -> Iterator[ListedFile]:
    """Yields what is in a folder in the order of the names, from the name that follows one; looks at nothing else."""
    top, place = os.path.realpath(folder.top), os.path.realpath(folder.top / folder.path)
    while True:
        try:
            names = here.files.names(Path(place), after, _READ) if _is_in(place, top) else []
        except (FileNotFoundError, NotADirectoryError):
            return
        for name in names:
            facts = _facts(top, place, name)
            if facts is not None:
                yield ListedFile(folder, name, facts)
        if len(names) < _READ:
            return
        after = names[-1]


def _is_in(path: str, top: str) -> bool:
    return f"{path}/".startswith(f"{top}/")


def _facts(top: str, place: str, name: str) -> os.stat_result | None:
    """Returns what is known of an entry; None for what no link can open: devices, links out of the share, odd names."""
    path = f"{place}/{name}"
    try:
        name.encode()
        facts = os.lstat(path)
        if stat.S_ISLNK(facts.st_mode):
            facts = os.stat(path) if _is_in(os.path.realpath(path), top) else facts
    except (OSError, UnicodeEncodeError):
        return None  # gone by now, a dangling link, or a name that is not UTF-8
    return facts if stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode) else None


def _show(entry: ListedFile, link: Callable[[str], str]) -> Document:
    if stat.S_ISDIR(entry.facts.st_mode):
        return {"name": entry.name, "fileType": "directory"}
    return {
        "name": entry.name,
        "fileType": "file",
        "downloadUrl": link(posixpath.join(entry.folder.path, entry.name)),
        "properties": {"lastModified": write_moment(entry.facts.st_mtime), "contentLength": entry.facts.st_size},
    }


def _links(here: Here, ask: Ask, folder: Folder, expiry: float) -> Callable[[str], str]:
    """Returns what gives the link to a file of a folder's share by its path there."""
    public = "://management." in ask.base
    domain = BLOB_DOMAIN if folder.container else FILE_DOMAIN
    base = here.blobs[1] if folder.container and here.blobs else ask.base
    start = f"https://{folder.account}.{domain}" if public else f"{base}/{folder.account}"
    query = here.storage(container=folder.container).links(folder.account, folder.share, "rl", expiry)
    return lambda path: f"{start}/{folder.share}/{quote(path)}?{query(path)}"
