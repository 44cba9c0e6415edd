"""A store for one request that reads the same records again and again: each is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from batchhvd.service.store.records import Record, Store

_AT_A_TIME = 500  # ids of one statement; SQLite takes 999


class Glance(Store):
    """What a store held when it was first asked; it is thrown away with its request, and never written through."""

    def __init__(self, store: Store) -> None:
        """Looks at a store, through the same connections."""
        vars(self).update(vars(store))
        self._seen: dict[str, Record | None] = {}
        self._lists: dict[tuple[str, ...], list[Record]] = {}

    def expect(self, ids: Sequence[str]) -> None:
        """Reads those of many resources that exist, with a few statements."""
        keys = [id.lower() for id in ids]
        self._seen.update(dict.fromkeys(keys))
        for start in range(0, len(keys), _AT_A_TIME):
            self._seen.update({record.id.lower(): record for record in self._among(keys[start : start + _AT_A_TIME])})

    def get(self, id: str) -> Record | None:
        """Returns the resource with this id, or None."""
        key = id.lower()
        if key not in self._seen:
            self._seen[key] = super().get(id)
        return self._seen[key]

    def named(self, type: str, name: str) -> list[Record]:
        """Returns the resources of a type with a name, in whatever resource they are."""
        return self._once(("named", type, name), lambda: super(Glance, self).named(type, name))

    def servers_of(self, account: str) -> list[Record]:
        """Returns the file servers whose directory is served as a share of an account."""
        return self._once(("servers", account), lambda: super(Glance, self).servers_of(account))

    def _once(self, key: tuple[str, ...], read: Callable[[], list[Record]]) -> list[Record]:
        if key not in self._lists:
            self._lists[key] = read()
        return self._lists[key]

    def _among(self, keys: Iterable[str]) -> list[Record]:
        some = tuple(keys)
        return self.all_of(f"key IN ({', '.join('?' * len(some))})", *some)
