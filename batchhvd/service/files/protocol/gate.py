"""Whether a request may do what it asks: by the account's key, or by a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, frozen

from batchhvd.service.files.protocol import sas as files_sas
from batchhvd.service.files.protocol import shared_key as files_sharedkey
from batchhvd.service.files.protocol.refusal import refuse
from batchhvd.service.files.protocol.request import Request, Target, read_url
from batchhvd.service.files.protocol.sas import Grant
from batchhvd.service.files.route import Action, find

_BRIEF = 1 << 16  # bytes of a body that are written while others wait: handing them to a thread takes longer


@frozen
class Pass:
    """What a request may do.

    Attributes:
        action: the operation.
        source: what a copy or rename takes, or None.
        may_replace: whether a file that is there may be made anew.
    """

    action: Action
    source: Target | None
    may_replace: bool

    def complete(self, request: Request, body: tuple[bytes, ...]) -> Request:
        """Returns a request with its body and with what it may use."""
        hurried = self.action.brief and sum(map(len, body)) <= _BRIEF
        return evolve(request, body=body, source=self.source, may_replace=self.may_replace, hurried=hurried)


class Gate:
    """Lets requests through to the operations that they mean."""

    def __init__(self, keys: Callable[[str], Sequence[str] | None], now: Callable[[], float]) -> None:
        self._keys = keys
        self._now = now

    def admit(self, request: Request) -> Pass:
        """Returns the operation that a request means and what it may use; refuses what it may not do."""
        grant = self._grant(request)
        action = find(request)
        action.check(grant)
        rename, copy = request.header("x-ms-file-rename-source"), request.header("x-ms-copy-source")
        source = self._source(request, grant, rename or copy, "d" if rename else "r") if rename or copy else None
        return Pass(action, source, grant.letters is None or "w" in grant.letters)

    def key(self, account: str) -> str:
        """Returns the key that signs new links of an account; refuses one that does not exist."""
        return self._known(account)[0]

    def _grant(self, request: Request) -> Grant:
        if "authorization" in request.headers:
            files_sharedkey.check(request, self._known(request.target.account), self._now())
            return Grant()
        if "sig" in request.query:
            return self._link(request, request.target, request.query)
        raise refuse("AuthenticationFailed", "It carries neither an Authorization header nor a link's parameters.")

    def _source(self, request: Request, grant: Grant, url: str, letter: str) -> Target:
        """Returns what a URL points at, if the request may take it.

        The URL may carry a link of its own; without one, the request's own key or link must reach that far.
        """
        target, query = read_url(url)
        if "sig" not in query:
            if target.account != request.target.account:
                raise refuse("CannotVerifyCopySource")
            if grant.letters is None:
                return target
            query = dict(request.query)
        reach = self._link(request, target, query)
        if reach.letters is not None and letter not in reach.letters:
            raise refuse("AuthorizationPermissionMismatch", "It is about the source.")
        return target

    def _link(self, request: Request, target: Target, query: Mapping[str, str]) -> Grant:
        keys = self._known(target.account)
        return files_sas.check(query, target, keys, self._now(), scheme=request.scheme, client=request.client)

    def _known(self, account: str) -> Sequence[str]:
        keys = self._keys(account) if account else None
        if not keys:
            raise refuse("AuthenticationFailed", "There is no such storage account.")
        return keys
