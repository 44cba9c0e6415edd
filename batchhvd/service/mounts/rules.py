"""Rules that the description cannot say: about mounts, variables, paths. Each returns what is wrong, with pointers."""

from __future__ import annotations

import hmac
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from batchhvd.service.description.schema import Problem
from batchhvd.service.http.exchange import Document, Here
from batchhvd.service.mounts import machine
from batchhvd.service.mounts import model as mounts
from batchhvd.service.store import accounts

_NO_BLOBS = "is not supported: there are no blob containers here; use azureFileShares"
_NO_VAULT = "is not supported: there is no key vault here; give the value itself"
_IDENTIFIER = re.compile(r"[A-Za-z0-9_]+")


def problems(here: Here, volumes: Document, at: str) -> list[Problem]:
    """Returns what is wrong with a ``mountVolumes`` block."""
    found = [Problem(f"{at}/azureBlobFileSystems", _NO_BLOBS)] if volumes.get("azureBlobFileSystems") else []
    for index, entry in enumerate(volumes.get("azureFileShares", ())):
        found += _share_problems(here, entry, f"{at}/azureFileShares/{index}")
    for index, entry in enumerate(volumes.get("fileServers", ())):
        found += _server_problems(here, entry, f"{at}/fileServers/{index}")
    for index, entry in enumerate(volumes.get("unmanagedFileSystems", ())):
        found += _directory_problems(here, entry["mountCommand"], f"{at}/unmanagedFileSystems/{index}/mountCommand")
    return found + list(_place_problems(volumes, at))


def _share_problems(here: Here, entry: Document, at: str) -> list[Problem]:
    account, credentials = entry["accountName"], entry["credentials"]
    keys = accounts.keys_of(here.store, account)
    if keys is None:
        return [Problem(f"{at}/accountName", f"names the storage account '{account}', which does not exist")]
    if "accountKeySecretReference" in credentials:
        return [Problem(f"{at}/credentials/accountKeySecretReference", _NO_VAULT)]
    if "accountKey" not in credentials:
        return [Problem(f"{at}/credentials/accountKey", "is missing")]
    if not any(hmac.compare_digest(credentials["accountKey"].encode(), key.encode()) for key in keys):
        return [Problem(f"{at}/credentials/accountKey", f"is no key of the storage account '{account}'")]
    return _url_problems(here, account, entry["azureFileUrl"], f"{at}/azureFileUrl")


def _url_problems(here: Here, account: str, url: str, at: str) -> list[Problem]:
    found = mounts.share_of(url, account)
    if found is None:
        return [Problem(at, f"must be https://{account}.file.core.windows.net/SHARE, not {url.partition('?')[0]}")]
    share, directory = found
    folder = here.files.directory(account, share)
    if folder is None:
        return [Problem(at, f"names the share '{share}', which does not exist in the account '{account}'")]
    if directory and not (folder / directory).is_dir():
        return [Problem(at, f"names the directory '{directory}', which does not exist in the share '{share}'")]
    return []


def _server_problems(here: Here, entry: Document, at: str) -> list[Problem]:
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


def _place_problems(volumes: Document, at: str) -> Iterator[Problem]:
    taken: list[str] = []
    for kind in ("azureFileShares", "fileServers", "unmanagedFileSystems"):
        for index, entry in enumerate(volumes.get(kind, ())):
            pointer, path = f"{at}/{kind}/{index}/relativeMountPath", entry["relativeMountPath"]
            place = posixpath.normpath(path or ".")
            if not mounts.inside(path) or place == "." or "$" in path:
                yield Problem(pointer, f"must be a relative path that stays inside, not '{path}'")
            elif any(f"{place}/".startswith(f"{other}/") or f"{other}/".startswith(f"{place}/") for other in taken):
                yield Problem(pointer, f"overlaps with another mount: '{path}'")
            taken.append(place)


def variable_problems(holder: Document, at: str) -> list[Problem]:
    """Returns what is wrong with the ``environmentVariables`` and ``secrets`` of a job or of a setup task."""
    found = []
    for kind in ("environmentVariables", "secrets"):
        for index, entry in enumerate(holder.get(kind, ())):
            pointer = f"{at}/{kind}/{index}"
            if not entry["name"] or "=" in entry["name"]:
                found.append(Problem(f"{pointer}/name", f"is no name of a variable: '{entry['name']}'"))
            if "valueSecretReference" in entry:
                found.append(Problem(f"{pointer}/valueSecretReference", _NO_VAULT))
            elif "value" not in entry:
                found.append(Problem(f"{pointer}/value", "is missing"))
    return found


def log_problems(holder: Document, known: list[mounts.MountPoint], at: str) -> list[Problem]:
    """Returns what is wrong with the ``stdOutErrPathPrefix`` of a job or of a setup task."""
    return _prefix_problems(holder["stdOutErrPathPrefix"], known, f"{at}/stdOutErrPathPrefix")


def directory_problems(properties: Document, known: list[mounts.MountPoint], at: str) -> list[Problem]:
    """Returns what is wrong with a job's standard output prefix, input and output directories."""
    found = [*_id_problems(properties, "inputDirectories", at), *_id_problems(properties, "outputDirectories", at)]
    found += log_problems(properties, known, at)
    for index, entry in enumerate(properties.get("outputDirectories", ())):
        pointer = f"{at}/outputDirectories/{index}"
        found += _prefix_problems(entry["pathPrefix"], known, f"{pointer}/pathPrefix")
        if not mounts.inside(entry.get("pathSuffix", "").lstrip("/")):
            found.append(Problem(f"{pointer}/pathSuffix", "must stay inside the output directory"))
    return found


def _prefix_problems(path: str, known: list[mounts.MountPoint], pointer: str) -> list[Problem]:
    found = mounts.locate(path, known)
    if found is not None and found[0].unmanaged:
        return [Problem(pointer, f"lies on a directory of the machine, which the file service does not show: '{path}'")]
    return [] if found else [Problem(pointer, _not_mounted(path, known))]


def _not_mounted(path: str, known: list[mounts.MountPoint]) -> str:
    there = ", ".join(f"${mount.root}/{mount.path}" for mount in known) or "none"
    return f"lies on no mount: '{path}'; the mounts are: {there}"


def _id_problems(properties: Document, kind: str, at: str) -> Iterator[Problem]:
    seen: set[Any] = {"stdouterr"} if kind == "outputDirectories" else set()
    for index, entry in enumerate(properties.get(kind, ())):
        pointer = f"{at}/{kind}/{index}/id"
        if not _IDENTIFIER.fullmatch(entry["id"]):
            yield Problem(pointer, f"must be letters, digits and underscores, not '{entry['id']}'")
        elif entry["id"] in seen:
            yield Problem(pointer, f"is taken already: '{entry['id']}'")
        seen.add(entry["id"])
