"""Decides whether a request may do what it asks for: by the account's key, or by a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from batchhvd.service.storage.protocol import sas, shared_key
from batchhvd.service.storage.protocol.refusal import refusal
from batchhvd.service.storage.protocol.request import Request, Target
from batchhvd.service.storage.protocol.sas import Grant, Policies
from batchhvd.service.storage.protocol.source import read_url

_MAY_READ: Sequence[set[str]] = ({"r"},)
_MAY_MOVE: Sequence[set[str]] = ({"d"}, {"r", "w"})  # a link may rename if it may delete, or read and write


class Gate:
    """Knows the keys of all accounts, the policies of all shares and the time, and so what a request may do."""

    def __init__(
        self, keys: Callable[[str], Sequence[str] | None], now: Callable[[], float], policies: Policies
    ) -> None:
        self._keys = keys
        self._now = now
        self._policies = policies

    def grant(self, request: Request) -> Grant:
        """Returns what a request may do, by the account's key or by a link; refuses one that carries neither."""
        if "authorization" in request.headers:
            shared_key.check(request, self._known(request.target.account), self._now())
            return Grant()
        if "sig" in request.query:
            return self._link(request, request.target, request.query)
        raise refusal("AuthenticationFailed", "It carries neither an Authorization header nor a link's parameters.")

    def source(self, request: Request, grant: Grant) -> Target | None:
        """Returns what a copy or rename takes, None for other requests; refuses one that may not take it."""
        rename, copy = request.header("x-ms-file-rename-source"), request.header("x-ms-copy-source")
        if not rename and not copy:
            return None
        return self._source(request, grant, rename or copy, _MAY_MOVE if rename else _MAY_READ)

    def key(self, account: str) -> str:
        """Returns the key that signs new links of an account; refuses one that does not exist."""
        return self._known(account)[0]

    def _source(self, request: Request, grant: Grant, url: str, letters: Sequence[set[str]]) -> Target:
        """Returns what a URL points at, if the request may take it.

        The URL may carry a link of its own; without one, the request's own key or link must reach that far.
        """
        target, query = read_url(url, request, request.header("x-ms-source-allow-trailing-dot"))
        if "sig" not in query:
            if target.account != request.target.account:
                raise refusal("CannotVerifyCopySource")
            if grant.letters is None:
                return target
            query = dict(request.query)
        reach = self._link(request, target, query)
        if reach.letters is not None and not any(each <= set(reach.letters) for each in letters):
            raise refusal("AuthorizationPermissionMismatch", "It is about the source.")
        return target

    def _link(self, request: Request, target: Target, query: Mapping[str, str]) -> Grant:
        keys = self._known(target.account)
        scheme, client = request.scheme, request.client
        return sas.check(query, target, keys, self._now(), scheme=scheme, client=client, policies=self._policies)

    def _known(self, account: str) -> Sequence[str]:
        keys = self._keys(account) if account else None
        if not keys:
            raise refusal("AuthenticationFailed", "The storage account does not exist.")
        return keys
