"""What is wrong with a job's ``containerSettings``, for a service that runs images."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from batchhvd.service.description.reader import Problem
from batchhvd.service.mounts import model as mounts
from batchhvd.service.mounts.model import MountPoint
from batchhvd.service.store.documents import JobProperties
from batchhvd.service.store.records import Document

_AT = "/properties/containerSettings"
# An image's name as docker's grammar has it; it begins with no hyphen, so that no command takes it for an option.
_NAME = re.compile(r"[a-zA-Z0-9][\w.-]*(:\d+)?(/[\w.-]+)*(:[\w.-]{1,128})?(@sha256:[0-9a-f]{64})?", re.ASCII)
_SERVER = re.compile(r"(https?://)?[a-zA-Z0-9][\w.-]*(:\d+)?(/[\w.-]+)*/?", re.ASCII)
_SIZE = re.compile(r"\d+[bkmgBKMG]?", re.ASCII)
_ARCHIVE = re.compile(r"(oci|docker)-archive:(.*)", re.DOTALL)
_NO_VAULT = "is not supported: there is no key vault here; give the password itself"


def problems(properties: JobProperties, known: Sequence[MountPoint]) -> list[Problem]:
    """Returns what is wrong.

    Args:
        properties: the job's.
        known: the mounts of the job and its cluster.
    """
    if "containerSettings" not in properties:
        return []
    settings = properties["containerSettings"]
    source, size = settings["imageSourceRegistry"], settings.get("shmSize", "")
    found = [*_image_problems(source["image"], known), *_registry_problems(source)]
    if size and not _SIZE.fullmatch(size):
        found.append(Problem(f"{_AT}/shmSize", f"must be a number with b, k, m or g, such as 2g, not {ascii(size)}"))
    return found


def _image_problems(image: str, known: Sequence[MountPoint]) -> Iterator[Problem]:
    at, archive = f"{_AT}/imageSourceRegistry/image", _ARCHIVE.fullmatch(image)
    if archive is None:
        if not _NAME.fullmatch(image):
            text = "must be the name of an image, oci-archive:PATH or docker-archive:PATH"
            yield Problem(at, f"{text}, not {ascii(image[:80])}")
    elif set(archive[2]) & set("\n\r\0") or mounts.below(archive[2], list(known)) is None:
        yield Problem(at, f"must name an archive on one of the job's mounts, not {ascii(archive[2][:80])}")


def _registry_problems(source: Document) -> Iterator[Problem]:
    server, credentials = source.get("serverUrl", ""), source.get("credentials", {})
    if server and not _SERVER.fullmatch(server):
        yield Problem(f"{_AT}/imageSourceRegistry/serverUrl", f"must be a registry's host, not {ascii(server[:80])}")
    if "passwordSecretReference" in credentials:
        yield Problem(f"{_AT}/imageSourceRegistry/credentials/passwordSecretReference", _NO_VAULT)
    elif credentials and not credentials.get("password"):
        yield Problem(f"{_AT}/imageSourceRegistry/credentials/password", "is missing")
