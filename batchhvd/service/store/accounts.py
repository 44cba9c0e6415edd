"""Storage accounts in the store: found by name, with their keys."""

from __future__ import annotations

from collections.abc import Sequence

from batchhvd.service.store.records import Record, Store


def find(store: Store, account: str) -> Record | None:
    """Returns an account by its name, which is unique over all groups, or None."""
    tail = f"/{account.lower()}"
    return next((r for r in store.list("storageAccounts") if r.id.lower().endswith(tail)), None)


def keys_of(store: Store, account: str) -> Sequence[str] | None:
    """Returns the keys of an account, in base64, or None if there is no such account.

    A file server's directory is served like a share, so each has an account of its own, which no list shows.
    """
    record = find(store, account)
    if record is not None:
        return keys(record)
    servers = store.list("fileServers")
    return next((server.private["keys"] for server in servers if share_of(server)[0] == account), None)


def keys(account: Record) -> list[str]:
    """Returns the keys of an account, in base64."""
    return [key["value"] for key in account.private["keys"]]


def share_of(server: Record) -> tuple[str, str]:
    """Returns the account and the share that a file server's directory is served as."""
    return str(server.private["account"]), str(server.private["share"])
