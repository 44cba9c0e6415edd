"""Removes what must not be shown from a document: account keys, passwords, secrets' values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batchhvd.service.store.documents import MountVolumes, Variable
from batchhvd.service.store.records import Document
from batchhvd.wire.facts.secrets import SECRET_FIELDS

# A GET of the published examples shows only the name of a user's account, so the public key is hidden as well.
_HIDDEN = SECRET_FIELDS | {"adminUserSshPublicKey"}


def visible(document: Mapping[str, object]) -> Document:
    """Returns a document without its secrets; the objects that held them stay."""
    return {name: _entry(name, part) for name, part in document.items() if name not in _HIDDEN}


def _entry(name: str, value: object) -> object:
    if name == "secrets" and isinstance(value, list):
        return [visible({key: part for key, part in secret.items() if key != "value"}) for secret in value]
    return _part(value)


def _part(value: object) -> object:
    if isinstance(value, list):
        return [_part(part) for part in value]
    return visible(value) if isinstance(value, dict) else value


def account_keys(volumes: MountVolumes) -> dict[str, str]:
    """Returns the key of each storage account that some mount volumes name."""
    mounted = [*volumes.get("azureFileShares", ()), *volumes.get("azureBlobFileSystems", ())]
    return {each["accountName"]: each["credentials"].get("accountKey", "") for each in mounted}


def registry_password(properties: Mapping[str, object]) -> str:
    """Returns the password of a job's image registry, or ""."""
    found: object = properties
    for name in ("containerSettings", "imageSourceRegistry", "credentials", "password"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, str) else ""


def secrets(entries: Sequence[Variable]) -> dict[str, str]:
    """Returns the values of secret variables by their names."""
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}
