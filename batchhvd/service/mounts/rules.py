"""Rules that the description cannot express: mounts, variables, paths. Each returns what is wrong and where."""

from __future__ import annotations

import hmac
import posixpath
import re
from collections.abc import Iterator, Sequence

from batchhvd.service.description.reader import Problem
from batchhvd.service.http.exchange import Here
from batchhvd.service.mounts import machine
from batchhvd.service.mounts import model as mounts
from batchhvd.service.store import accounts
from batchhvd.service.store.documents import (
    AzureBlobFileSystem,
    AzureFileShare,
    FileServerMount,
    JobProperties,
    MountVolumes,
    TaskProperties,
    UnmanagedFileSystem,
    Variable,
)
from batchhvd.wire.facts.hosts import FILE_DOMAIN
from batchhvd.wire.facts.job_variables import allowed

_READ_ONLY = re.compile(r"(?:^|[\s,=-])(?:ro|read-only)(?:$|[\s,=])")
_NO_VAULT = "is not supported: there is no key vault here; give the value itself"
_VARIABLE = re.compile(r"\$(?:\w+|\{\w*\}?)", re.ASCII)  # what a node would expand in a path
_Mounted = AzureFileShare | AzureBlobFileSystem | FileServerMount | UnmanagedFileSystem
_IDENTIFIER = re.compile(r"[A-Za-z0-9_]+")


def problems(here: Here, volumes: MountVolumes, at: str) -> list[Problem]:
    """Returns what is wrong with a ``mountVolumes`` block."""
    found: list[Problem] = []
    for index, entry in enumerate(volumes.get("azureFileShares", ())):
        found += _share_problems(here, entry, f"{at}/azureFileShares/{index}")
    for index, blobs in enumerate(volumes.get("azureBlobFileSystems", ())):
        found += _container_problems(here, blobs, f"{at}/azureBlobFileSystems/{index}")
    for index, server in enumerate(volumes.get("fileServers", ())):
        found += _server_problems(here, server, f"{at}/fileServers/{index}")
    for index, system in enumerate(volumes.get("unmanagedFileSystems", ())):
        found += _directory_problems(here, system["mountCommand"], f"{at}/unmanagedFileSystems/{index}/mountCommand")
    return found + list(_place_problems(volumes, at))


def _share_problems(here: Here, entry: AzureFileShare, at: str) -> list[Problem]:
    found = _credential_problems(here, entry, at)
    return found or _url_problems(here, entry["accountName"], entry["azureFileUrl"], f"{at}/azureFileUrl")


def _container_problems(here: Here, entry: AzureBlobFileSystem, at: str) -> list[Problem]:
    account, container, options = entry["accountName"], entry["containerName"], entry.get("mountOptions", "")
    if found := _credential_problems(here, entry, at):
        return found
    if here.blobs is None or here.blobs[0].directory(account, container) is None:
        text = f"names the container '{container}', which does not exist in the account '{account}'"
        return [Problem(f"{at}/containerName", text)]
    if _READ_ONLY.search(options):
        text = f"asks for a mount that cannot be written, which is not supported: '{options}'"
        return [Problem(f"{at}/mountOptions", text)]
    return []


def _credential_problems(here: Here, entry: AzureFileShare | AzureBlobFileSystem, at: str) -> list[Problem]:
    account, credentials = entry["accountName"], entry["credentials"]
    keys = accounts.keys_of(here.store, account)
    if keys is None:
        return [Problem(f"{at}/accountName", f"names the storage account '{account}', which does not exist")]
    if "accountKeySecretReference" in credentials:
        return [Problem(f"{at}/credentials/accountKeySecretReference", _NO_VAULT)]
    if "accountKey" not in credentials:
        return [Problem(f"{at}/credentials/accountKey", "is missing")]
    if not any(hmac.compare_digest(credentials["accountKey"].encode(), key.encode()) for key in keys):
        return [Problem(f"{at}/credentials/accountKey", f"is not a key of the storage account '{account}'")]
    return []


def _url_problems(here: Here, account: str, url: str, at: str) -> list[Problem]:
    found = mounts.share_of(url, account)
    if found is None:
        return [Problem(at, f"must be https://{account}.{FILE_DOMAIN}/SHARE, not {url.partition('?')[0]}")]
    share, directory = found
    folder = here.files.directory(account, share)
    if folder is None:
        return [Problem(at, f"names the share '{share}', which does not exist in the account '{account}'")]
    if directory and not (folder / directory).is_dir():
        return [Problem(at, f"names the directory '{directory}', which does not exist in the share '{share}'")]
    return []


def _server_problems(here: Here, entry: FileServerMount, at: str) -> list[Problem]:
    id = entry["fileServer"]["id"]
    record = here.store.get(id)
    if record is None or record.type != "fileServers":
        return [Problem(f"{at}/fileServer/id", f"names the file server {id}, which does not exist")]
    if not mounts.inside(entry.get("sourceDirectory", "").lstrip("/")):
        return [Problem(f"{at}/sourceDirectory", "must stay inside the file server")]
    return []


def _directory_problems(here: Here, command: str, at: str) -> list[Problem]:
    directory = mounts.bound(command)
    if directory is None:
        text = f"is not supported: '{command}'; mount --bind DIRECTORY is, for a directory that the service allows"
        return [Problem(at, text)]
    why = machine.refusal(directory, here.directories)
    return [Problem(at, f"names {why}")] if why else []


def _place_problems(volumes: MountVolumes, at: str) -> Iterator[Problem]:
    taken: list[str] = []
    for pointer, path in _places(volumes, at):
        place = posixpath.normpath(path or ".")
        if not mounts.inside(path) or place == "." or "$" in path:
            yield Problem(pointer, f"must be a relative path that stays inside, not '{path}'")
        elif any(f"{place}/".startswith(f"{other}/") or f"{other}/".startswith(f"{place}/") for other in taken):
            yield Problem(pointer, f"overlaps with another mount: '{path}'")
        taken.append(place)


def _places(volumes: MountVolumes, at: str) -> Iterator[tuple[str, str]]:
    """Yields the JSON pointer and the value of each mount's ``relativeMountPath``."""
    kinds: tuple[tuple[str, Sequence[_Mounted]], ...] = (
        ("azureFileShares", volumes.get("azureFileShares", ())),
        ("azureBlobFileSystems", volumes.get("azureBlobFileSystems", ())),
        ("fileServers", volumes.get("fileServers", ())),
        ("unmanagedFileSystems", volumes.get("unmanagedFileSystems", ())),
    )
    for kind, entries in kinds:
        for index, entry in enumerate(entries):
            yield f"{at}/{kind}/{index}/relativeMountPath", entry["relativeMountPath"]


def variable_problems(holder: TaskProperties, at: str) -> list[Problem]:
    """Returns what is wrong with the ``environmentVariables`` and ``secrets`` of a job or of a setup task."""
    found: list[Problem] = []
    for index, entry in enumerate(holder.get("environmentVariables", ())):
        found += _variable_problems(entry, f"{at}/environmentVariables/{index}")
        found += _interpreted_problems(entry, f"{at}/environmentVariables/{index}")
    for index, entry in enumerate(holder.get("secrets", ())):
        found += _variable_problems(entry, f"{at}/secrets/{index}")
    return found


def _variable_problems(entry: Variable, at: str) -> Iterator[Problem]:
    if not entry["name"] or "=" in entry["name"]:
        yield Problem(f"{at}/name", f"must be a variable's name, not empty and without '=', not '{entry['name']}'")
    elif not _is_text(entry["name"]):
        yield Problem(f"{at}/name", f"must be a text without NUL characters, not {ascii(entry['name'])}")
    if "valueSecretReference" in entry:
        yield Problem(f"{at}/valueSecretReference", _NO_VAULT)
    elif "value" not in entry:
        yield Problem(f"{at}/value", "is missing")
    elif not _is_text(entry["value"]):
        yield Problem(f"{at}/value", f"must be a text without NUL characters, for the variable {ascii(entry['name'])}")


def _interpreted_problems(entry: Variable, at: str) -> Iterator[Problem]:
    name, value = entry["name"], entry.get("value")
    if value is not None and (wanted := allowed(name, value)):
        yield Problem(f"{at}/value", f"must be {wanted} for the variable {name}, not {ascii(value[:40])}")


def _is_text(value: str) -> bool:
    """Whether a value can be a variable's: text in UTF-8 without NUL."""
    return "\0" not in value and value == value.encode("utf-8", "replace").decode()


def log_problems(holder: TaskProperties, known: list[mounts.MountPoint], at: str) -> list[Problem]:
    """Returns what is wrong with the ``stdOutErrPathPrefix`` of a setup task."""
    return _prefix_problems(holder["stdOutErrPathPrefix"], known, f"{at}/stdOutErrPathPrefix")


def unmounted_warnings(properties: JobProperties, known: list[mounts.MountPoint]) -> Iterator[str]:
    """Yields a sentence for each prefix of a job's outputs on which nothing is mounted."""
    places = [("stdOutErrPathPrefix", properties["stdOutErrPathPrefix"])]
    for index, entry in enumerate(properties.get("outputDirectories", ())):
        places.append((f"outputDirectories/{index}/pathPrefix", entry["pathPrefix"]))
    for pointer, path in places:
        if mounts.unmounted(path, known) is not None:
            yield (
                f"/properties/{pointer} lies on no mount: '{path}'. What the job writes there stays in its own folder, "
                "below tasks/ in the service's root, and no list of files shows it."
            )


def directory_problems(properties: JobProperties, known: list[mounts.MountPoint], at: str) -> list[Problem]:
    """Returns what is wrong with a job's standard output prefix, input and output directories."""
    inputs = [entry["id"] for entry in properties.get("inputDirectories", ())]
    outputs = [entry["id"] for entry in properties.get("outputDirectories", ())]
    found = [*_id_problems(inputs, set(), f"{at}/inputDirectories")]
    found += _id_problems(outputs, {"stdouterr"}, f"{at}/outputDirectories")
    found += _output_problems(properties["stdOutErrPathPrefix"], known, f"{at}/stdOutErrPathPrefix")
    for index, entry in enumerate(properties.get("outputDirectories", ())):
        pointer = f"{at}/outputDirectories/{index}"
        found += _output_problems(entry["pathPrefix"], known, f"{pointer}/pathPrefix")
        suffix = entry.get("pathSuffix", "")
        if not mounts.inside(suffix.lstrip("/")):
            found.append(Problem(f"{pointer}/pathSuffix", "must stay inside the output directory"))
        elif variable := _VARIABLE.search(suffix):
            found.append(Problem(f"{pointer}/pathSuffix", f"may hold no variable, not '{variable[0]}': '{suffix}'"))
    return found


def _output_problems(path: str, known: list[mounts.MountPoint], pointer: str) -> list[Problem]:
    """Returns what is wrong with a prefix of a job's outputs; Batch AI took one below the cluster's root as it is."""
    if mounts.unmounted(path, known) is not None and not _VARIABLE.search(path, 1):
        return []
    return _prefix_problems(path, known, pointer)


def _prefix_problems(path: str, known: list[mounts.MountPoint], pointer: str) -> list[Problem]:
    found, variable = mounts.locate(path, known), _VARIABLE.search(path, 1)
    if found is not None and variable:
        text = f"may begin with the variable of a mount root and hold no other one, not '{variable[0]}': '{path}'"
        return [Problem(pointer, text)]
    if found is not None and found[0].unmanaged:
        return [Problem(pointer, f"lies on a directory of the machine, which the file service does not show: '{path}'")]
    return [] if found else [Problem(pointer, _not_mounted(path, known))]


def _not_mounted(path: str, known: list[mounts.MountPoint]) -> str:
    there = ", ".join(f"${mount.root}/{mount.path}" for mount in known) or "none"
    return f"lies on no mount: '{path}'; the mounts are: {there}"


def _id_problems(ids: Sequence[str], taken: set[str], at: str) -> Iterator[Problem]:
    for index, id in enumerate(ids):
        if not _IDENTIFIER.fullmatch(id):
            yield Problem(f"{at}/{index}/id", f"must be letters, digits and underscores, not '{id}'")
        elif id in taken:
            yield Problem(f"{at}/{index}/id", f"is taken already: '{id}'")
        taken.add(id)
