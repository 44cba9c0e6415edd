"""What a job runs, and its input and output directories: frozen values with their names on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from attrs import Attribute, field, fields_dict, frozen

from batchhvd.errors import SpecError
from batchhvd.wire.facts.documents import Body, Document

if TYPE_CHECKING:
    from typing_extensions import Self


def _check_count(_owner: object, _attribute: object, value: int | None) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise SpecError(
            f"processes must be a whole number of at least 1, not {value!r}",
            pointer="/processCount",
            remedy="give a number such as 4",
        )


def _check_text(owner: Block, attribute: Attribute[str], value: str) -> None:
    if not isinstance(value, str) or not value.strip():
        pointer = "/" + owner._names[attribute.name]
        raise SpecError(
            f"{attribute.name} must be a text that is not empty, not {value!r}", pointer=pointer, remedy="fill it in"
        )


@frozen
class Block:
    """Converts a value to and from an object of the wire, by the table ``_names``; the rest is its ``extra``."""

    _names: ClassVar[Mapping[str, str]]
    extra: Document = field(factory=dict, kw_only=True, repr=False)

    def to_document(self) -> Body:
        """Returns the wire's object; what equals its default is left out."""
        known = fields_dict(type(self))
        values = {wire: getattr(self, name) for name, wire in self._names.items()}
        defaults = {wire: known[name].default for name, wire in self._names.items()}
        return {**{wire: value for wire, value in values.items() if value != defaults[wire]}, **self.extra}

    @classmethod
    def from_document(cls, block: Document) -> Self:
        """Returns the value of an object of the wire."""
        names = {wire: name for name, wire in cls._names.items()}
        values = {names[wire]: value for wire, value in block.items() if wire in names}
        return cls(**values, extra={wire: value for wire, value in block.items() if wire not in names})


@frozen
class Horovod(Block):
    """A Python script that runs on every rank under Horovod.

    Attributes:
        script: its path on the node, such as ``mount / "cifar/train.py"``.
        args: its command line arguments, as a shell would take them.
        processes: the total number of ranks, or None for one on each node.
        python: the interpreter's path on the node, or None for the node's own.
        extra: further fields as the wire has them.

    Raises:
        SpecError: no script, or ``processes`` below 1.
    """

    wire: ClassVar[str] = "horovodSettings"
    _names: ClassVar[Mapping[str, str]] = {
        "script": "pythonScriptFilePath",
        "args": "commandLineArgs",
        "processes": "processCount",
        "python": "pythonInterpreterPath",
    }

    script: str = field(converter=str, validator=_check_text)
    args: str = field(default="", converter=str)
    processes: int | None = field(default=None, validator=_check_count)
    python: str | None = None


@frozen
class CustomMpi(Block):
    """A command line that an MPI launcher runs on every rank.

    Attributes:
        command: the command line of one rank.
        processes: the total number of ranks, or None for one on each node.
        extra: further fields as the wire has them.

    Raises:
        SpecError: no command, or ``processes`` below 1.
    """

    wire: ClassVar[str] = "customMpiSettings"
    _names: ClassVar[Mapping[str, str]] = {"command": "commandLine", "processes": "processCount"}

    command: str = field(converter=str, validator=_check_text)
    processes: int | None = field(default=None, validator=_check_count)


@frozen
class CustomToolkit(Block):
    """A command line that runs once, on the job's first node.

    Attributes:
        command: the command line; "" does nothing.
        extra: further fields as the wire has them.
    """

    wire: ClassVar[str] = "customToolkitSettings"
    _names: ClassVar[Mapping[str, str]] = {"command": "commandLine"}

    command: str = field(default="", converter=str)


@frozen
class OtherToolkit:
    """A toolkit of the published description without a class of its own, such as ``cntkSettings``.

    Attributes:
        wire: the name of its settings block.
        settings: the block, unchanged.
    """

    wire: str
    settings: Document = field(factory=dict)

    def to_document(self) -> Body:
        """Returns the wire's settings block."""
        return dict(self.settings)


TOOLKITS: Mapping[str, type[Horovod] | type[CustomMpi] | type[CustomToolkit]] = {
    kind.wire: kind for kind in (Horovod, CustomMpi, CustomToolkit)
}
Task = Horovod | CustomMpi | CustomToolkit | OtherToolkit


def _check_id(_owner: object, _attribute: object, value: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_]+", value):
        remedy = "use letters, digits and _ only: it becomes part of a variable's name"
        raise SpecError(f'"{value}" is not the id of a directory', pointer="/id", remedy=remedy)


@frozen
class InputDirectory(Block):
    """A directory that the job finds in ``$AZ_BATCHAI_INPUT_<id>``.

    Attributes:
        id: letters, digits and ``_``.
        path: its path on the node.
        extra: further fields as the wire has them.
    """

    _names: ClassVar[Mapping[str, str]] = {"id": "id", "path": "path"}

    id: str = field(validator=_check_id)
    path: str = field(converter=str, validator=_check_text)


@frozen
class OutputDirectory(Block):
    """A directory that is created for the job, which finds it in ``$AZ_BATCHAI_OUTPUT_<id>``.

    Attributes:
        id: letters, digits and ``_``.
        prefix: the path below which it is created, on a mount.
        suffix: its own last part, or None.
        extra: further fields as the wire has them.
    """

    _names: ClassVar[Mapping[str, str]] = {"id": "id", "prefix": "pathPrefix", "suffix": "pathSuffix"}

    id: str = field(validator=_check_id)
    prefix: str = field(converter=str, validator=_check_text)
    suffix: str | None = None
