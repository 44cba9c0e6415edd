"""The description of a cluster, to and from the published cluster.json."""

from __future__ import annotations

import os
from collections.abc import Mapping

from attrs import Attribute, field, frozen

from batchhvd.errors import SpecError
from batchhvd.spec import json_source
from batchhvd.spec.document import (
    accounts_without_key,
    clean,
    errors_at,
    merge,
    open_document,
    with_keys,
    without_secrets,
    write_document,
)
from batchhvd.spec.json_source import JsonSource
from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.states import VmPriority, VmPriorityWord

_KIND = "ClusterBaseProperties"
PRIORITIES = tuple(VmPriority)


def _check_count(_owner: object, attribute: Attribute[int], value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SpecError(
            f"{attribute.name} must be a whole number of at least 0, not {value!r}", remedy="give a number such as 4"
        )


@frozen
class AutoScale:
    """A cluster that grows and shrinks with its jobs.

    Attributes:
        minimum: the fewest nodes.
        maximum: the most nodes.
        initial: how many it starts with, ``minimum`` by default.

    Raises:
        SpecError: not 0 ≤ minimum ≤ initial ≤ maximum.
    """

    minimum: int = field(validator=_check_count)
    maximum: int = field(validator=_check_count)
    initial: int = field(validator=_check_count)

    @initial.default
    def _minimum(self) -> int:
        return self.minimum

    def __attrs_post_init__(self) -> None:
        if not self.minimum <= self.initial <= self.maximum:
            problem = (
                f"a cluster cannot scale from {self.minimum} to {self.maximum} nodes and start with {self.initial}"
            )
            raise SpecError(problem, remedy="give minimum ≤ initial ≤ maximum")

    def to_document(self) -> dict[str, int]:
        """Returns the wire's ``autoScale`` object."""
        counts = {"minimumNodeCount": self.minimum, "maximumNodeCount": self.maximum}
        return {**counts, **({"initialNodeCount": self.initial} if self.initial != self.minimum else {})}


@frozen(kw_only=True)
class ClusterSpec:
    """The description of a cluster.

    Attributes:
        vm_size: the size of its machines, such as ``"Standard_NC6"``.
        nodes: how many nodes, or ``AutoScale``.
        priority: ``"dedicated"`` or ``"lowpriority"``.
        user: the administrator's name on the nodes, or None to let the client choose.
        ssh_key: the administrator's public key, or None.
        password: the administrator's password, or None; never shown.
        location: what older files say at the top; since 2018-05-01 the workspace decides.
        extra: all other ``properties`` as the wire has them, such as ``nodeSetup``; never shown.
        warnings: what looked odd in the file that it was read from.

    Raises:
        SpecError: a value is out of its range.
    """

    vm_size: str
    nodes: int | AutoScale = 0
    priority: VmPriority | VmPriorityWord = "dedicated"
    user: str | None = None
    ssh_key: str | None = None
    password: str | None = field(default=None, repr=False)
    location: str | None = None
    extra: Document = field(factory=dict, repr=False)
    warnings: tuple[str, ...] = field(default=(), eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.vm_size:
            raise SpecError("vmSize is missing", pointer="/vmSize", remedy='give a size, such as "Standard_NC6"')
        if self.priority not in PRIORITIES:
            raise SpecError(f'"{self.priority}" is not a priority', remedy=f"allowed: {', '.join(PRIORITIES)}")
        if not isinstance(self.nodes, AutoScale) and (not isinstance(self.nodes, int) or self.nodes < 0):
            raise SpecError(
                f"nodes must be a whole number of at least 0, or AutoScale, not {self.nodes!r}",
                remedy="give 4, or AutoScale(0, 4)",
            )

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, account: object = None, **given: object) -> ClusterSpec:
        """Reads a cluster.json; arguments win over the file.

        Args:
            path: the file.
            account: the storage account for its placeholders, by name or as an object.
            **given: any field, such as ``vm_size="Standard_D1"`` or ``nodes=AutoScale(0, 3)``; None means not given.

        Raises:
            SpecError: the file or a value is wrong, or neither says the size of the machines.
        """
        return cls._open(json_source.read(path), account, given)

    @classmethod
    def from_document(cls, document: Document, *, account: object = None, **given: object) -> ClusterSpec:
        """Returns the value of a document in the wire's shape, as ``read`` does for a file."""
        return cls._open(json_source.of(document), account, given)

    @classmethod
    def _open(cls, source: JsonSource, account: object, given: Document) -> ClusterSpec:
        opened, notices = open_document(source, _KIND, account)
        fields = _fields(opened, clean(opened.value["properties"]))
        wanted = {name: value for name, value in given.items() if value is not None}
        fields = {"location": opened.value.get("location"), **fields, **wanted, "warnings": notices}
        if not fields.get("vm_size"):
            remedy = 'add "vmSize" to the file, or give vm_size=… (on the command line --vm-size)'
            raise source.fault("/properties", "vmSize is missing", remedy)
        with errors_at(source, "/properties"):
            return cls(**fields)

    def to_document(self) -> Body:
        """Returns the wire's document, without password and keys."""
        found: Body = without_secrets(self._request({}))
        return {**({"location": self.location} if self.location else {}), **found}

    def _request(self, keys: Mapping[str, str]) -> Body:
        """Returns the body that creates the cluster, keys and password included.

        Args:
            keys: account keys by account name, for the accounts that need one.
        """
        account = {
            "adminUserName": self.user,
            "adminUserSshPublicKey": self.ssh_key,
            "adminUserPassword": self.password,
        }
        fixed = {
            "vmSize": self.vm_size,
            "vmPriority": self.priority if self.priority != VmPriority.DEDICATED else None,
            "scaleSettings": self._scale(),
            "userAccountSettings": account,
        }
        properties = merge(clean(fixed), self.extra)
        return {"properties": with_keys(properties, keys)}

    def _accounts(self) -> tuple[str, ...]:
        """Returns the names of the storage accounts whose keys the request needs."""
        return accounts_without_key(self.extra)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a cluster.json, without password and keys."""
        write_document(path, "cluster", self.to_document())

    def _scale(self) -> Body:
        if isinstance(self.nodes, AutoScale):
            return {"autoScale": self.nodes.to_document()}
        return {"manual": {"targetNodeCount": self.nodes}}


def _fields(source: JsonSource, properties: Body) -> Body:
    """Takes the fields of ``ClusterSpec`` out of the wire's properties; the rest is ``extra``."""
    rest = dict(properties)
    user = dict(rest.pop("userAccountSettings", {}))
    fields = {
        "vm_size": rest.pop("vmSize", None),
        "priority": rest.pop("vmPriority", "dedicated").lower(),
        "user": user.pop("adminUserName", None),
        "ssh_key": user.pop("adminUserSshPublicKey", None),
        "password": user.pop("adminUserPassword", None),
    }
    scale = dict(rest.pop("scaleSettings", {}))
    with errors_at(source, "/properties/scaleSettings"):
        fields["nodes"], scale = _nodes(scale)
    left = {"userAccountSettings": user, "scaleSettings": scale}
    return {**fields, "extra": {**rest, **{name: value for name, value in left.items() if value}}}


def _nodes(scale: Body) -> tuple[int | AutoScale, Body]:
    if "manual" in scale and "autoScale" in scale:
        raise SpecError("both manual and autoScale are given", remedy="keep one of them")
    if "autoScale" in scale:
        auto = dict(scale.pop("autoScale"))
        low, high = auto.pop("minimumNodeCount"), auto.pop("maximumNodeCount")
        nodes = AutoScale(low, high, auto.pop("initialNodeCount", low))
        return nodes, {**scale, **({"autoScale": auto} if auto else {})}
    manual = dict(scale.pop("manual", {}))
    count = manual.pop("targetNodeCount", 0)
    return count, {**scale, **({"manual": manual} if manual else {})}
