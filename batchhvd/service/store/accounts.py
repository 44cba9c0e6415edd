"""Storage accounts in the store: found by name, with their keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from batchhvd.service.store.records import ACTIVE, Record, Store
from batchhvd.wire.facts.account_kinds import FILE_STORAGE

KEPT_DAYS = "keptDays"
"""The entry of an account's private part with the days for which its deleted shares are kept."""


def kept_days(store: Store, account: str) -> int:
    """Returns for how many days the deleted shares of an account can be restored, 0 for not at all."""
    record = find(store, account)
    return int(record.private.get(KEPT_DAYS, 0)) if record else 0


def sku(store: Store, account: str) -> str:
    """Returns the SKU of an account of the kind FileStorage, "" for an account of another kind, or none."""
    record = find(store, account)
    if record is None or record.document.get("kind") != FILE_STORAGE:  # accounts of early versions have no kind
        return ""
    return str((record.document.get("sku") or {}).get("name") or "")


def find(store: Store, account: str) -> Record | None:
    """Returns an account by its name, which is unique over all groups, or None."""
    return next(iter(store.named("storageAccounts", account.lower())), None)


def keys_of(store: Store, account: str) -> Sequence[str] | None:
    """Returns the keys of an account, in base64, or None if there is no such account.

    A file server's directory is served like a share, so each has an account of its own, which no list shows.
    """
    record = find(store, account)
    if record is not None:
        return keys(record)
    return next((server.private["keys"] for server in store.servers_of(account)), None)


class KeyBook:
    """The keys of all accounts, read again after each change of the store: every request to a share asks for them."""

    def __init__(self, store: Store) -> None:
        """Begins with none."""
        self._store = store
        self._page: tuple[int, dict[str, Sequence[str]]] = (-1, {})

    def __call__(self, account: str) -> Sequence[str] | None:
        """Returns the keys of an account, in base64, or None if there is no such account."""
        page, at = self._page, self._store.commits
        if page[0] != at:
            page = self._page = (at, {})
        found = page[1].get(account) or keys_of(self._store, account)
        if found:
            page[1][account] = found  # never on the page of a later change: another thread may have turned it
        return found


def folders(root: Path, account: str) -> tuple[Path, ...]:
    """Returns the directories in which an account's shares and containers lie, and the blocks of its blobs."""
    containers = root / "containers"
    return root / "shares" / account, containers / account, containers / ".files" / "blocks" / account


def keys(account: Record) -> list[str]:
    """Returns the keys of an account, in base64."""
    return [key["value"] for key in account.private["keys"]]


def share_of(server: Record) -> tuple[str, str]:
    """Returns the account and the share that a file server's directory is served as."""
    return str(server.private["account"]), str(server.private["share"])


def job_with_key(store: Store, account: str) -> str | None:
    """Returns the id of a job that has not ended and was given a key of an account, or None."""
    key = f"CASE WHEN json_valid(private) THEN json_extract(private, '$.keys.{account}') END"
    found = store.query(f"SELECT id FROM resource WHERE {ACTIVE} AND {key} IS NOT NULL LIMIT 1")
    return str(found[0][0]) if found else None


def may_mount(store: Store, server: Record) -> list[Record]:
    """Returns all clusters and jobs that have not ended whose documents name a file server."""
    name = f'/fileservers/{server.document["name"]}"'.lower()
    clusters = store.all_of("type = 'clusters' AND instr(lower(document), ?)", name)
    return [*clusters, *store.all_of(f"{ACTIVE} AND instr(lower(document), ?)", name)]
