"""Takes what must not be shown out of a document: account keys, passwords, secrets' values."""

from __future__ import annotations

from typing import Any

from batchhvd.wire.facts.secrets import SECRET_FIELDS

# A GET of the published examples shows no more of a user's account than the name, so the public key goes as well.
_HIDDEN = SECRET_FIELDS | {"adminUserSshPublicKey"}


def visible(value: Any) -> Any:
    """Returns a document without its secrets; the objects that held them stay."""
    if isinstance(value, list):
        return [visible(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {name: _entries(name, part) for name, part in value.items() if name not in _HIDDEN}


def account_keys(volumes: dict[str, Any]) -> dict[str, str]:
    """Returns the key of each storage account that some mount volumes name."""
    shares = volumes.get("azureFileShares", ())
    return {share["accountName"]: share["credentials"].get("accountKey", "") for share in shares}


def secrets(entries: list[dict[str, Any]]) -> dict[str, str]:
    """Returns the values of secret variables by their names."""
    return {entry["name"]: entry["value"] for entry in entries if "value" in entry}


def _entries(name: str, value: Any) -> Any:
    if name == "secrets" and isinstance(value, list):
        return [{key: visible(part) for key, part in entry.items() if key != "value"} for entry in value]
    return visible(value)
