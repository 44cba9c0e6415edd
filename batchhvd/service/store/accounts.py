"""Storage accounts as the store has them: found by name, with their keys."""

from __future__ import annotations

from collections.abc import Sequence

from batchhvd.service.store.records import Record, Store


def find(store: Store, account: str) -> Record | None:
    """Returns an account by its name, which is unique over all groups, or None."""
    tail = f"/{account.lower()}"
    return next((r for r in store.list("storageAccounts") if r.id.lower().endswith(tail)), None)


def keys_of(store: Store, account: str) -> Sequence[str] | None:
    """Returns the keys of an account, in base64, or None if there is no such account.

    A file server's directory is served like a share, so each has an account of its own, which is listed nowhere.
    """
    record = find(store, account)
    if record is not None:
        return [key["value"] for key in record.private["keys"]]
    servers = store.list("fileServers")
    return next((server.private["keys"] for server in servers if server.private["account"] == account), None)
