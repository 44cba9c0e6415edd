"""The image of a task: which one it is, and the file with the credentials of its registry."""

from __future__ import annotations

import base64
import hashlib
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from batchhvd.node.folder.document import ContainerDocument

ARCHIVES = ("oci-archive:", "docker-archive:")
"""How the name of an image begins that is the path of an archive."""
OURS = "localhost/batchhvd/job-image"
"""The repository of the images that jobs have brought; they go when no job uses them any more."""
_HUB = "docker.io"


def archive_of(image: str) -> str:
    """Returns the path of the archive that an image's name is, or ""."""
    return next((image[len(kind) :] for kind in ARCHIVES if image.startswith(kind)), "")


def full_name(image: str, server: str = "") -> str:
    """Returns an image's name with its registry, as docker completes it.

    Args:
        image: the name as the job gives it.
        server: the registry's host, or "" for the one in the name, else Docker Hub.
    """
    first, slash, _ = image.partition("/")
    if server:
        return image if image.startswith(f"{server}/") else f"{server}/{image}"
    if slash and (set(first) & set(".:") or first == "localhost"):
        return image
    return f"{_HUB}/{image}" if slash else f"{_HUB}/library/{image}"


def mark(*facts: str) -> str:
    """Returns our own name for an image that a job brings: other jobs do not find it by the name that it came with."""
    return f"{OURS}:{hashlib.sha256(chr(0).join(facts).encode()).hexdigest()[:24]}"


def write_credentials(folder: Path, container: ContainerDocument) -> None:
    """Writes ``config.json`` with the credentials of a task's registry, readable by its owner only.

    Args:
        folder: the file's folder.
        container: the task's container; without a password, the file allows nothing.
    """
    entries: dict[str, Mapping[str, str]] = {}
    if container["password"]:
        name = full_name(container["image"], container["server"]).partition("/")[0]
        pair = f"{container['username']}:{container['password']}".encode()
        place = "https://index.docker.io/v1/" if name == _HUB else name
        entries = dict.fromkeys((name, place), {"auth": base64.b64encode(pair).decode()})
    write_private(folder / "config.json", json.dumps({"auths": entries}).encode())


def write_private(path: Path, content: bytes) -> None:
    """Writes a new file that only its owner can read."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)


def names_in(path: str) -> Sequence[str]:
    """Returns the names that an archive gives its images, after a look at whether it is one.

    Raises:
        ValueError: it is not an archive of an image.
        OSError: it cannot be read.
    """
    import tarfile  # takes 15 ms

    try:
        with tarfile.open(path) as archive:
            found = {name: _member(archive, name) for name in ("manifest.json", "index.json")}
    except (tarfile.TarError, EOFError, ValueError) as error:  # cut short, or something else
        raise ValueError(f"{path} is damaged, or not an archive of an image: {error}") from None
    if found["manifest.json"] is None and found["index.json"] is None:
        raise ValueError(f"{path} is not an archive of an image: it has neither index.json nor manifest.json")
    return _names(found)


def _member(archive: object, name: str) -> object:
    file = archive.extractfile(name) if name in archive.getnames() else None  # type: ignore[attr-defined]
    return None if file is None else json.load(file)


def _names(found: Mapping[str, object]) -> list[str]:
    names: list[str] = []
    for entry in _list(found["manifest.json"]):
        names += [str(name) for name in entry.get("RepoTags") or ()]
    index = found["index.json"]
    for entry in _list(index.get("manifests")) if isinstance(index, dict) else ():
        name = (entry.get("annotations") or {}).get("org.opencontainers.image.ref.name")
        names += [name] if name else []
    return names


def _list(value: object) -> list[dict[str, dict[str, str]]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []
