"""Which share a path of a job is on, and where in it. Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from attrs import frozen

from batchhvd.service.store.documents import ClusterProperties, JobProperties, MountVolumes
from batchhvd.wire.facts.mount_roots import CLUSTER_ROOT, JOB_ROOT

_BIND = (["mount", "--bind"], ["mount", "-B"], ["mount", "-o", "bind"], ["mount", "--rbind"], ["mount", "-R"])
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))(?=/|$)")


OUTPUTS = "outputs"
"""The folder in a job's segment that holds its output directories. Source: recordings of the real service."""


@frozen
class MountPoint:
    """One mounted share.

    Attributes:
        root: the variable under which it is mounted, ``JOB_ROOT`` or ``CLUSTER_ROOT``.
        path: its path below that, normalised.
        account, share: what is mounted, a share or a container; for a file server the account is "" and the share is
            the file server's id; for a directory of the machine both are "".
        inside: the directory of the share that is mounted, "" for all of it; or the machine's directory.
        container: whether it is a container of blobs.
    """

    root: str
    path: str
    account: str
    share: str
    inside: str = ""
    container: bool = False

    @property
    def unmanaged(self) -> bool:
        """Whether it is a directory of the machine."""
        return not self.account and not self.share


def share_of(url: str, account: str) -> tuple[str, str] | None:
    """Returns share and directory of an ``azureFileUrl`` of this account, None when it is not such a URL.

    Both forms are taken: ``https://ACCOUNT.file.HOST/SHARE`` and ``http://127.0.0.1:PORT/ACCOUNT/SHARE``.
    """
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
    except ValueError:
        return None
    names = [unquote(name) for name in parts.path.split("/") if name]
    owner = host.partition(".file.")[0] if ".file." in host else "".join(names[:1])
    names = names if ".file." in host else names[1:]
    if owner != account or parts.scheme not in ("http", "https") or not names or not inside("/".join(names)):
        return None
    return names[0], "/".join(names[1:])


def bound(command: str) -> str | None:
    """Returns the directory that a mount command binds, ``mount --bind DIRECTORY``; None for any other command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    flags, directory = words[:-1], "".join(words[-1:])
    if flags not in _BIND or not directory.startswith("/") or "\0" in directory:
        return None
    return posixpath.normpath(directory)


def inside(path: str) -> bool:
    """Says whether a relative path stays below its start and is one that a file system can hold."""
    return not path.startswith("/") and ".." not in path.split("/") and "\0" not in path


def of(volumes: MountVolumes, root: str) -> Iterator[MountPoint]:
    """Yields the mounts of one ``mountVolumes`` block; entries that are not shares are left out."""
    for entry in volumes.get("azureFileShares", ()):
        found = share_of(entry["azureFileUrl"], entry["accountName"])
        if found is not None:
            yield MountPoint(root, posixpath.normpath(entry["relativeMountPath"]), entry["accountName"], *found)
    for system in volumes.get("azureBlobFileSystems", ()):
        path = posixpath.normpath(system["relativeMountPath"])
        yield MountPoint(root, path, system["accountName"], system["containerName"], container=True)
    for server in volumes.get("fileServers", ()):
        path, directory = posixpath.normpath(server["relativeMountPath"]), server.get("sourceDirectory", "")
        yield MountPoint(root, path, "", server["fileServer"]["id"], directory.strip("/"))
    for command in volumes.get("unmanagedFileSystems", ()):
        found_directory = bound(command["mountCommand"])
        if found_directory is not None:
            yield MountPoint(root, posixpath.normpath(command["relativeMountPath"]), "", "", found_directory)


def every(job: JobProperties, cluster: ClusterProperties) -> list[MountPoint]:
    """Returns the mounts that a job sees, from the ``properties`` of the job and of its cluster."""
    setup = cluster.get("nodeSetup", {}).get("mountVolumes", {})
    return [*of(job.get("mountVolumes", {}), JOB_ROOT), *of(setup, CLUSTER_ROOT)]


def locate(path: str, mounts: list[MountPoint]) -> tuple[MountPoint, str] | None:
    """Returns the mount that a path such as ``$AZ_BATCHAI_JOB_MOUNT_ROOT/share/logs`` is on, and the path in its share.

    Returns None when it is on no mount, or would leave it.
    """
    found = below(path, mounts)
    return found and (found[0], posixpath.join(found[0].inside, found[1]).rstrip("/"))


def below(path: str, mounts: list[MountPoint]) -> tuple[MountPoint, str] | None:
    """Returns the mount that a path is on, and the path below it; whatever reads such paths reads them with this."""
    root, place = _split(path)
    for mount in mounts:
        if mount.root == root and (place == mount.path or place.startswith(mount.path + "/")):
            return mount, place[len(mount.path) :].lstrip("/")
    return None


def unmounted(path: str, mounts: list[MountPoint]) -> str | None:
    """Returns the place below the cluster's mount root of a path on which nothing is mounted; None for any other path.

    Batch AI took such a path for outputs, and left them on the node.
    """
    root, place = _split(path)
    return place if root == CLUSTER_ROOT and below(path, mounts) is None else None


def _split(path: str) -> tuple[str, str]:
    """Returns the variable that a path begins with and the normal form of the rest; ("", "") if that would leave it."""
    variable = _VARIABLE.match(path)
    rest = path[variable.end() :].lstrip("/") if variable else ""
    if variable is None or not inside(rest):
        return "", ""
    return variable.group(1) or variable.group(2), posixpath.normpath(rest or ".")


def output_place(segment: str, outputs: str, suffix: str) -> str:
    """Returns the path of an output directory below its prefix.

    Args:
        segment: the job's ``jobOutputDirectoryPathSegment``.
        outputs: the folder there that holds the output directories, "" when the segment itself does.
        suffix: the directory's ``pathSuffix``, "" for the folder itself.
    """
    return posixpath.join(segment, outputs, suffix.strip("/")).rstrip("/")


def segment(id: str, last: str) -> str:
    """Returns the part of a path that keeps a resource's outputs apart, made of the resource's id and a last name."""
    parts = id.strip("/").split("/")
    return "/".join([parts[1], parts[3], *parts[6:], last])
