"""What all resources have in common: a name, a parent, an id, the document last read, and four methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar, cast

from attrs import NOTHING, define, field, fields, frozen

from batchhvd.errors import NotFoundError, ResourceFailedError, SpecError, WaitTimeoutError
from batchhvd.resources.values.listing import Listing
from batchhvd.wire.facts.states import ProvisioningState, ProvisioningWord
from batchhvd.wire.models import Document, wire

if TYPE_CHECKING:
    from typing_extensions import Self

    from batchhvd.resources.session import Session
    from batchhvd.wire.connection import Connection

R = TypeVar("R", bound="Resource")


class Poller(Protocol):
    """A long-running operation, as the Azure packages give it."""

    def wait(self, timeout: float | None = None) -> None:
        """Waits until it ends or the seconds are over; does not say which."""

    def done(self) -> bool:
        """Says whether it is over."""

    def result(self) -> object:
        """Returns its result, or raises if it failed."""


class Parent(Protocol):
    """What resources lie in: another resource, or the session for resource groups."""

    @property
    def id(self) -> str:
        """The id that the resources' own begin with."""

    @property
    def _path(self) -> tuple[str, ...]:
        """The names from the resource group down to it."""

    @property
    def _session(self) -> Session:
        """The way to the service."""

    def _asking(self, verb: str) -> AbstractContextManager[None]:
        """Translates the errors of a request about it."""


@frozen
class Operations:
    """The operations of the Azure packages for one kind of resource, by their names there.

    Attributes:
        client: the connection's client.
        group: the client's group of operations.
        list: lists the resources of one parent.
        get: reads one.
        delete: deletes one.
    """

    client: str
    group: str
    list: str
    get: str = "get"
    delete: str = "begin_delete"


def _check_name(resource: Resource, _attribute: object, name: str) -> None:
    if not isinstance(name, str) or not name.strip() or "/" in name:
        raise SpecError(f"{name!r} is not the name of a {resource.kind}", remedy="give a name without a slash")


@define(eq=False, repr=False, slots=False)
class Resource:
    """A handle to one resource of the service: equal by id, made of strings, usable in another process.

    Creating a handle sends no request. The first access to a field other than the name reads the resource, once;
    ``refresh``, and every other method that gets an answer, fills the fields again.

    Attributes:
        name: its name.
        provisioning: ``creating``, ``succeeded``, ``failed`` or ``deleting``.
    """

    _parent: Parent = field()
    name: str = field(validator=_check_name)
    provisioning: ProvisioningState | ProvisioningWord = field(init=False)
    _document: Document = field(factory=dict, init=False)

    kind: ClassVar[str] = "resource"
    _plural: ClassVar[str] = "resources"
    _segment: ClassVar[str] = ""
    _operations: ClassVar[Operations]
    _kinds: ClassVar[tuple[type[Resource], ...]] = ()

    @property
    def id(self) -> str:
        """The resource's id, as Resource Manager writes it; case does not matter."""
        return f"{self._parent.id}{self._segment}/{self.name}"

    @property
    def document(self) -> Document:
        """The resource as the service described it last, in the form of the wire; read on first access."""
        return self._document or self.refresh()._document

    def refresh(self) -> Self:
        """Reads the resource from the service and fills its fields.

        Raises:
            NotFoundError: it does not exist.
        """
        with self._asking("read"):
            document = self._read()
        return self._load(document)

    def exists(self) -> bool:
        """Says whether it exists, and fills its fields if it does.

        Raises:
            ServiceError: the service gave no clear answer.
        """
        try:
            self.refresh()
        except NotFoundError:
            return False
        return True

    def contents(self) -> list[Resource]:
        """Returns everything that ``delete`` would remove together with this resource; a parent before its content."""
        found: list[Resource] = []
        for kind in self._kinds:
            for child in children(kind, self):
                found += [child, *child.contents()]
        return found

    def delete(self, *, timeout: float = 600.0) -> None:
        """Deletes the resource and everything in it (``contents`` lists it); does nothing if it is gone already.

        Args:
            timeout: seconds to wait; running jobs are terminated first.

        Raises:
            WaitTimeoutError: the deletion did not end in time; it continues.
        """
        try:
            with self._asking("deleted"):
                self._finish(self._remove(), timeout, "deleted")
        except NotFoundError:
            return
        self.provisioning = ProvisioningState.DELETING

    if not TYPE_CHECKING:  # a type checker knows the fields; to it, this would be any attribute

        def __getattr__(self, name: str) -> object:
            """Reads the resource on the first access to a field that only an answer fills.

            Raises:
                NotFoundError: it does not exist.
            """
            if name not in _filled(type(self)):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return self.refresh().__dict__[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resource) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        if not self._document:
            return f"{type(self).__name__}({self.name!r}, not read yet)"
        facts = "".join(
            f", {name}={_plain(value)!r}" for name, value in self._facts().items() if value not in ("", None)
        )
        return f"{type(self).__name__}({self.name!r}{facts})"

    def _repr_html_(self) -> str:
        from batchhvd.views.notebook import card, unread

        return card(self) if self._document else unread(self.name, self.kind)

    def __reduce__(self) -> tuple[type[Resource], tuple[Parent, str]]:
        return type(self), (self._parent, self.name)

    def _key(self) -> tuple[Session, str]:
        return self._session, self.id.lower()

    @property
    def _session(self) -> Session:
        """The way to the service."""
        return self._parent._session

    @property
    def _connection(self) -> Connection:
        """The way to the service, as the Azure packages need it."""
        return self._session._connection

    @property
    def _path(self) -> tuple[str, ...]:
        """The names from the resource group down to this one: the arguments of the Azure packages' operations."""
        return (*self._parent._path, self.name)

    def _asking(self, verb: str) -> AbstractContextManager[None]:
        return self._connection.translating(f"{self.kind} {self.name!r} cannot be {verb}")

    def _finish(self, poller: Poller | None, timeout: float, verb: str) -> object:
        """Waits for an operation's end and returns its result; None if there is nothing to wait for."""
        if poller is None:
            return None
        poller.wait(timeout)  # returns in silence when the time is over
        if not poller.done():
            what = f"waited {timeout:.0f} s for {self.kind} {self.name!r} to be {verb}, and it has not finished"
            raise WaitTimeoutError(
                f"{what}. It continues by itself; check with exists() or refresh(), or try again with a longer timeout",
                last_state="in progress",
                waited=timeout,
            ).told(f"{what}. It continues by itself; `batchhvd {self.kind.split()[0]} show {self.name}` shows it")
        return poller.result()

    def _created(self, start: Callable[[], Poller], timeout: float) -> Self:
        """Sends a PUT, waits until it has finished and checks that it succeeded."""
        with self._asking("created"):
            result = self._finish(start(), timeout, "created")
            document = self._read() if result is None else wire(result)
        self._load(document)
        if self.provisioning == ProvisioningState.FAILED:
            raise ResourceFailedError(
                f"{self.kind} {self.name!r} could not be created: {'; '.join(self._reasons()) or 'no reason given'}. "
                "Delete it, and create it again when the reason is gone",
                resource=self.id,
                reasons=self._reasons(),
            )
        return self

    def _load(self, document: Document) -> Self:
        """Fills the fields from the wire's document."""
        self._document = document
        properties = document.get("properties") or {}
        state = ProvisioningState.read(str(properties.get("provisioningState") or ""))
        self.provisioning = cast("ProvisioningState", state)
        return self

    def _facts(self) -> dict[str, object]:
        """What the one-line form shows beside the name."""
        return {"provisioning": self.provisioning}

    def _reasons(self) -> list[str]:
        """The service's reasons if something went wrong."""
        return []

    @classmethod
    def _pages(cls, parent: Parent) -> Iterable[object]:
        """Requests all resources of this kind in a parent."""
        known = cls._operations
        operations = parent._session._connection.operations(known.client, known.group)
        found: Iterable[object] = getattr(operations, known.list)(*parent._path)
        return found

    def _read(self) -> Document:
        """Requests the document."""
        known = self._operations
        return wire(getattr(self._connection.operations(known.client, known.group), known.get)(*self._path))

    def _remove(self) -> Poller | None:
        """Requests its deletion; returns None if that was done at once."""
        known = self._operations
        operations = self._connection.operations(known.client, known.group)
        started: Poller | None = getattr(operations, known.delete)(*self._path)
        return started


@cache
def _filled(kind: type[Resource]) -> frozenset[str]:
    """Returns the names of the fields that an answer fills."""
    return frozenset(known.name for known in fields(kind) if not known.init and known.default is NOTHING)


def _plain(value: object) -> object:
    """Returns a word of the wire as the text that it is."""
    return str(value) if isinstance(value, str) else value


def children(kind: type[R], parent: Parent) -> Listing[R]:
    """Returns a listing of the resources of one kind in a parent; nothing is sent."""
    return Listing(lambda: _children(kind, parent), _table)


def _children(kind: type[R], parent: Parent) -> Iterator[R]:
    items = None
    while True:
        with parent._asking(f"searched for {kind._plural}"):
            items = items if items is not None else iter(kind._pages(parent))
            model = next(items, None)
        if model is None:
            return
        document = wire(model)
        yield kind(parent, str(document["name"]))._load(document)


def _table(found: Sequence[R]) -> str:
    from batchhvd.views.notebook import table

    return table(found)
