"""What every resource is: a name under a parent, an id, a document that was read, and four verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from attrs import define, field

from batchhvd.errors import NotFoundError, ResourceFailedError, SpecError, WaitTimeoutError
from batchhvd.wire.connection import Connection
from batchhvd.wire.models import Document, wire

if TYPE_CHECKING:
    from typing_extensions import Self

R = TypeVar("R", bound="Resource")


class Poller(Protocol):
    """A long-running operation, as the Azure packages give it."""

    def wait(self, timeout: float | None = None) -> None:
        """Waits for its end, or until the seconds are over; does not say which."""

    def done(self) -> bool:
        """Says whether it is over."""

    def result(self) -> Any:
        """Returns what came of it, and raises where it failed."""


def _check_name(resource: Resource, _attribute: object, name: str) -> None:
    if not isinstance(name, str) or not name.strip() or "/" in name:
        raise SpecError(f"{name!r} is not the name of a {resource.kind}", remedy="give a name without a slash")


@define(eq=False, repr=False, slots=False)
class Resource:
    """A handle on one resource of the service: equal by id, made of strings, good in another process.

    Making one asks nobody; fields other than the name are filled by ``refresh`` and by every verb that gets an answer,
    and are empty before.

    Attributes:
        parent: the resource it lives in; the connection for a resource group.
        name: its name.
        provisioning: ``creating``, ``succeeded``, ``failed`` or ``deleting``; "" before the first answer.
    """

    parent: Any = field()
    name: str = field(validator=_check_name)
    provisioning: str = field(default="", init=False)
    _document: Document = field(factory=dict, init=False)

    kind: ClassVar[str] = "resource"
    _segment: ClassVar[str] = ""

    @property
    def connection(self) -> Connection:
        """The way to the service."""
        return self.parent if isinstance(self.parent, Connection) else self.parent.connection

    @property
    def id(self) -> str:
        """The resource's id, as Resource Manager writes it; compares without regard to case."""
        return f"{self.parent.id}{self._segment}/{self.name}"

    @property
    def document(self) -> Document:
        """The resource as the service described it last, in the wire's own words; empty before the first answer."""
        return self._document

    def refresh(self) -> Self:
        """Reads the resource from the service and fills its fields.

        Raises:
            NotFoundError: it is not there.
        """
        with self._asking("read"):
            document = self._read()
        return self._load(document)

    def exists(self) -> bool:
        """Says whether the service has it, and fills its fields where it does.

        Raises:
            ServiceError: it could not be found out.
        """
        try:
            self.refresh()
        except NotFoundError:
            return False
        return True

    def contents(self) -> list[Resource]:
        """Returns everything that ``delete`` would remove together with this resource; a parent before its content."""
        found: list[Resource] = []
        for child in self._children():
            found += [child, *child.contents()]
        return found

    def delete(self, *, timeout: float = 600.0) -> None:
        """Deletes the resource and all that is in it (``contents`` says what); one that is gone already is fine.

        Args:
            timeout: seconds to wait for its end; running jobs are ended first.

        Raises:
            WaitTimeoutError: it was not over in time; it goes on.
        """
        try:
            with self._asking("deleted"):
                self._finish(self._remove(), timeout, "deleted")
        except NotFoundError:
            return
        self.provisioning = "deleting"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resource) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        facts = "".join(f", {name}={value!r}" for name, value in self._facts().items() if value not in ("", None))
        return f"{type(self).__name__}({self.name!r}{facts})"

    def _repr_html_(self) -> str:
        from batchhvd.views.notebook import card

        return card(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parent, self.name)

    def _key(self) -> tuple[Connection, str]:
        return self.connection, self.id.lower()

    @property
    def _path(self) -> tuple[str, ...]:
        """The names from the resource group down to this one: the arguments of the Azure packages' operations."""
        above = self.parent._path if isinstance(self.parent, Resource) else ()
        return (*above, self.name)

    def _asking(self, verb: str) -> AbstractContextManager[None]:
        return self.connection.translating(f"{self.kind} {self.name!r} cannot be {verb}")

    def _finish(self, poller: Poller | None, timeout: float, verb: str) -> Any:
        """Waits for an operation's end and returns its result; None for one that was over at once."""
        if poller is None:
            return None
        poller.wait(timeout)  # returns in silence when the time is over
        if not poller.done():
            raise WaitTimeoutError(
                f"waited {timeout:.0f} s for {self.kind} {self.name!r} to be {verb}, and it is not over. It goes on by "
                "itself; look with exists() or refresh(), or ask again with a longer timeout",
                last_state="in progress",
                waited=timeout,
            )
        return poller.result()

    def _created(self, start: Callable[[], Poller], timeout: float) -> Self:
        """Sends a PUT, waits for its end and checks that it ended well."""
        with self._asking("created"):
            result = self._finish(start(), timeout, "created")
            document = self._read() if result is None else wire(result)
        self._load(document)
        if self.provisioning == "failed":
            raise ResourceFailedError(
                f"{self.kind} {self.name!r} could not be made: {'; '.join(self._reasons()) or 'no reason given'}. "
                "Delete it and create it anew once the reason is gone",
                resource=self.id,
                reasons=self._reasons(),
            )
        return self

    def _load(self, document: Document) -> Self:
        """Fills the fields from the wire's document."""
        self._document = document
        properties = document.get("properties") or {}
        self.provisioning = str(properties.get("provisioningState") or "").lower()
        return self

    def _facts(self) -> dict[str, object]:
        """What the one-line form shows beside the name."""
        return {"provisioning": self.provisioning}

    def _reasons(self) -> list[str]:
        """The service's reasons where it went wrong."""
        return []

    def _children(self) -> Iterator[Resource]:
        """Yields the resources directly inside."""
        return iter(())

    def _read(self) -> Document:
        """Asks the service for the document."""
        raise NotImplementedError

    def _remove(self) -> Poller | None:
        """Asks the service to delete it."""
        raise NotImplementedError


class Listing(Generic[R]):
    """The resources of one kind, read page by page each time somebody goes through them; a table in a notebook."""

    def __init__(
        self, pages: Callable[[], Iterator[Any]], make: Callable[[Document], R], asking: Callable[[], Any]
    ) -> None:
        """Makes a listing; nothing is sent.

        Args:
            pages: starts a listing of the Azure packages.
            make: makes the resource of one document.
            asking: the context that translates errors.
        """
        self._pages, self._make, self._asking = pages, make, asking

    def __iter__(self) -> Iterator[R]:
        items = None
        while True:
            with self._asking():
                items = items if items is not None else iter(self._pages())
                model = next(items, None)
            if model is None:
                return
            yield self._make(wire(model))

    def _repr_html_(self) -> str:
        from batchhvd.views.notebook import table

        return table(list(self))
