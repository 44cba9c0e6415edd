"""What a job runs, and its input and output directories: frozen values with their names on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from attrs import Attribute, field, fields_dict, frozen

from batchhvd.errors import SpecError
from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.toolkits import Start, faults, start

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


_SCRIPT = {"script": "pythonScriptFilePath", "args": "commandLineArgs", "python": "pythonInterpreterPath"}


def _check_block(block: PyTorch | Cntk | Caffe) -> None:
    """Applies the rules that both ends of the wire know."""
    for name, text in faults(block.wire, block.to_document(), 1):
        raise SpecError(f"{name or block.wire} {text}", pointer=f"/{name}".rstrip("/"), remedy="correct it")


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
class PyTorch(Block):
    """A Python script that runs on every rank with the variables of ``torchrun``, such as for DistributedDataParallel.

    Attributes:
        script: its path on the node, such as ``mount / "ddp/train.py"``.
        args: its command line arguments, as a shell would take them.
        processes: the total number of ranks, or None for one on each node.
        python: the interpreter's path on the node, or None for the node's own.
        backend: ``"gloo"``, ``"nccl"``, ``"mpi"`` or ``"tcp"``, or None to leave the choice to the script; the ranks
            find it in ``$AZ_BATCHAI_PYTORCH_BACKEND``.
        extra: further fields as the wire has them.

    Raises:
        SpecError: no script, ``processes`` below 1, or an unknown backend.
    """

    wire: ClassVar[str] = "pyTorchSettings"
    _names: ClassVar[Mapping[str, str]] = {**_SCRIPT, "processes": "processCount", "backend": "communicationBackend"}

    script: str = field(converter=str, validator=_check_text)
    args: str = field(default="", converter=str)
    processes: int | None = field(default=None, validator=_check_count)
    python: str | None = None
    backend: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_block(self)


@frozen
class TensorFlow(Block):
    """A Python script that runs as chief, workers and parameter servers, or once if there is one node and nothing else.

    Attributes:
        script: its path on the node.
        master_args, worker_args, server_args: the command line arguments of the chief, of the other workers, and of the
            parameter servers.
        workers: how many workers, the chief included, or None for one on each node.
        servers: how many parameter servers, 0 for none, or None for one if there are several workers or nodes.
        python: the interpreter's path on the node, or None for the node's own.
        extra: further fields as the wire has them.

    Raises:
        SpecError: no script, or ``workers`` below 1 or ``servers`` below 0.
    """

    wire: ClassVar[str] = "tensorFlowSettings"
    _names: ClassVar[Mapping[str, str]] = {
        "script": "pythonScriptFilePath",
        "master_args": "masterCommandLineArgs",
        "worker_args": "workerCommandLineArgs",
        "server_args": "parameterServerCommandLineArgs",
        "workers": "workerCount",
        "servers": "parameterServerCount",
        "python": "pythonInterpreterPath",
    }

    script: str = field(converter=str, validator=_check_text)
    master_args: str = field(default="", converter=str)
    worker_args: str = field(default="", converter=str)
    server_args: str = field(default="", converter=str)
    workers: int | None = None
    servers: int | None = None
    python: str | None = None

    def __attrs_post_init__(self) -> None:
        for name, least in (("workers", 1), ("servers", 0)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise SpecError(
                    f"{name} must be a whole number of at least {least}, not {value!r}",
                    pointer=f"/{self._names[name]}",
                    remedy="give a number such as 2",
                )


@frozen
class Chainer(Block):
    """A Python script that an MPI launcher runs on every rank; the fields are those of ``Horovod``."""

    wire: ClassVar[str] = "chainerSettings"
    _names: ClassVar[Mapping[str, str]] = {**_SCRIPT, "processes": "processCount"}

    script: str = field(converter=str, validator=_check_text)
    args: str = field(default="", converter=str)
    processes: int | None = field(default=None, validator=_check_count)
    python: str | None = None


@frozen
class Caffe2(Block):
    """A Python script that runs once on each node and finds its number in ``$AZ_BATCHAI_TASK_INDEX``."""

    wire: ClassVar[str] = "caffe2Settings"
    _names: ClassVar[Mapping[str, str]] = {**_SCRIPT}

    script: str = field(converter=str, validator=_check_text)
    args: str = field(default="", converter=str)
    python: str | None = None


@frozen
class Cntk(Block):
    """A configuration file in BrainScript, or a Python script, that an MPI launcher runs on every rank.

    Attributes:
        config: the path of the configuration file, for ``cntk``; or None.
        script: the path of the Python script; or None.
        args: command line arguments, as a shell would take them.
        processes: the total number of ranks, or None for one on each node; a single one needs no launcher.
        python: the script's interpreter, or None for the node's own.
        language: ``"BrainScript"`` or ``"Python"``, or None.
        extra: further fields as the wire has them.

    Raises:
        SpecError: not exactly one of ``config`` and ``script``, or what does not suit it; ``processes`` below 1.
    """

    wire: ClassVar[str] = "cntkSettings"
    _names: ClassVar[Mapping[str, str]] = {
        **_SCRIPT,
        "config": "configFilePath",
        "processes": "processCount",
        "language": "languageType",
    }

    config: str | None = None
    script: str | None = None
    args: str = field(default="", converter=str)
    processes: int | None = field(default=None, validator=_check_count)
    python: str | None = None
    language: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_block(self)


@frozen
class Caffe(Block):
    """A solver's file for ``caffe train``, or a Python script; its fields are those of ``Cntk``, less the language."""

    wire: ClassVar[str] = "caffeSettings"
    _names: ClassVar[Mapping[str, str]] = {**_SCRIPT, "config": "configFilePath", "processes": "processCount"}

    config: str | None = None
    script: str | None = None
    args: str = field(default="", converter=str)
    processes: int | None = field(default=None, validator=_check_count)
    python: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_block(self)


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
    """A settings block as the wire has it, where the toolkit's own class is not wanted.

    Attributes:
        wire: the name of its settings block.
        settings: the block, unchanged.
    """

    wire: str
    settings: Document = field(factory=dict)

    def to_document(self) -> Body:
        """Returns the wire's settings block."""
        return dict(self.settings)


Known = Horovod | PyTorch | TensorFlow | Chainer | Cntk | Caffe | Caffe2 | CustomMpi | CustomToolkit
TOOLKITS: Mapping[str, type[Known]] = {
    kind.wire: kind for kind in (Horovod, PyTorch, TensorFlow, Chainer, Cntk, Caffe, Caffe2, CustomMpi, CustomToolkit)
}
Task = Known | OtherToolkit


def start_of(task: Task, nodes: int) -> Start:
    """Returns how the processes of a task on so many nodes are started."""
    return start(task.wire, task.to_document(), nodes)


def script_of(task: Task) -> str:
    """Returns the path of the file that a task runs, "" for a command line."""
    return start_of(task, 1).script


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
