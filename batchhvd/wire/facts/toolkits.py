"""The toolkits of Batch AI: their settings blocks, the ``toolType`` that the service answers, and how each is started.

Source: the description of 2018-05-01 and the published recipes. The description's enum has no word for PyTorch; its
text does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from attrs import field, frozen

from batchhvd.wire.facts.documents import Document

TOOL_TYPES = {
    "cntkSettings": "cntk",
    "pyTorchSettings": "pytorch",
    "tensorFlowSettings": "tensorflow",
    "caffeSettings": "caffe",
    "caffe2Settings": "caffe2",
    "chainerSettings": "chainer",
    "customToolkitSettings": "custom",
    "customMpiSettings": "custommpi",
    "horovodSettings": "horovod",
}
WITHOUT_PROCESS_COUNT = ("customToolkitSettings", "tensorFlowSettings", "caffe2Settings")
BACKENDS = ("tcp", "gloo", "mpi", "nccl")
"""What ``communicationBackend`` may be; the description has the first three, PyTorch of today the last three."""

RANK, CHIEF, WORKER, SERVER = "rank", "chief", "worker", "ps"
"""What a process of a job is; the last three are those of TensorFlow."""

SCRIPT, CONFIG, INTERPRETER = "pythonScriptFilePath", "configFilePath", "pythonInterpreterPath"
_ARGUMENTS = {
    CHIEF: "masterCommandLineArgs",
    WORKER: "workerCommandLineArgs",
    SERVER: "parameterServerCommandLineArgs",
}
_CONFIGURED = {"cntkSettings": "cntk configFile=", "caffeSettings": "caffe train --solver="}

NEEDS = {
    "cntkSettings": "cntk ended with version 2.7 for Python 3.6: the container image has to bring it",
    "caffeSettings": "caffe has had no release since 2017: the container image or the preparation has to bring it",
    "caffe2Settings": "caffe2 is not in PyTorch any more: the container image has to bring it",
    "chainerSettings": "chainer ended with version 7.8.1 for Python 3.9: the container image or an interpreter of that "
    "age has to bring it",
}
"""What a toolkit lacks on machines of today, a sentence each."""


@frozen
class Program:
    """What a process runs: a Python script, or a program with its configuration file.

    Attributes:
        path: of the script or of the configuration file.
        args: its command line arguments.
        words: the program, up to where the path follows; "" for Python.
        interpreter: the path of a script's own interpreter, or None.
    """

    path: str
    args: str = ""
    words: str = ""
    interpreter: str | None = None

    def line(self, python: str, quote: Callable[[str], str] = str, protect: Callable[[str], str] = str) -> str:
        """Returns the command line.

        Args:
            python: the interpreter for scripts that name none, as a word of the shell.
            quote: makes a word of the shell of a path.
            protect: makes arguments safe for the shell.
        """
        first = self.words or f"{quote(self.interpreter) if self.interpreter else python} "
        return f"{first}{quote(self.path)} {protect(self.args)}".strip()


@frozen
class Start:
    """How the processes of a job are started.

    Attributes:
        launch: ``"horovod"``, ``"pytorch"``, ``"tensorflow"`` and ``"peers"`` start each process on its node, ``"mpi"``
            leaves the placement to an MPI launcher, ``"single"`` runs one process on the first node.
        roles: what the processes of each node are.
        programs: what those of each role run; empty for a block that is a command line.
        command: the command line of a block that is one.
    """

    launch: str
    roles: tuple[tuple[str, ...], ...]
    programs: Mapping[str, Program] = field(factory=dict)
    command: str = ""

    @property
    def ranks(self) -> tuple[int, ...]:
        """How many processes each node has."""
        return tuple(map(len, self.roles))

    @property
    def script(self) -> str:
        """The file that must exist, or ""."""
        return next((program.path for program in self.programs.values()), "")


def kind_of(properties: Document) -> str:
    """Returns the name of a job's settings block, "" if it has none."""
    return next((name for name in TOOL_TYPES if properties.get(name) is not None), "")


def block_of(properties: Document) -> Document:
    """Returns a job's settings block, {} if it has none."""
    return properties.get(kind_of(properties)) or {}


def start(kind: str, block: Document, nodes: int) -> Start:
    """Returns how a job is started.

    Args:
        kind: the name of the settings block.
        block: the block.
        nodes: how many nodes it has, at least 1.
    """
    if kind == "tensorFlowSettings":
        return _tensorflow(block, nodes)
    if kind == "customToolkitSettings":
        return Start("single", _single(nodes), command=block.get("commandLine") or "")
    count = nodes if kind == "caffe2Settings" else block.get("processCount") or nodes
    launch = _launch(kind, block, count)
    roles = _single(nodes) if launch == "single" else tuple((RANK,) * each for each in spread(count, nodes))
    if kind == "customMpiSettings":
        return Start(launch, roles, command=block["commandLine"])
    return Start(launch, roles, {RANK: _program(kind, block, "commandLineArgs")})


def _launch(kind: str, block: Document, count: int) -> str:
    """Returns how the processes of a toolkit start; without a launcher where one process is all."""
    if kind == "pyTorchSettings":
        return "mpi" if str(block.get("communicationBackend")).lower() == "mpi" else "pytorch"
    fixed = {"horovodSettings": "horovod", "caffe2Settings": "peers", "customMpiSettings": "mpi"}
    return fixed.get(kind) or ("mpi" if count > 1 else "single")


def is_distributed(block: Document, nodes: int) -> bool:
    """Whether a TensorFlow job has workers and parameter servers, and not one plain process."""
    return nodes > 1 or any(block.get(name) is not None for name in ("workerCount", "parameterServerCount"))


def _tensorflow(block: Document, nodes: int) -> Start:
    if not is_distributed(block, nodes):
        return Start("single", _single(nodes), {RANK: _program("tensorFlowSettings", block, _ARGUMENTS[CHIEF])})
    workers, servers = block.get("workerCount") or nodes, block.get("parameterServerCount")
    placed = [[WORKER] * each for each in spread(workers, nodes)]
    placed[0][0] = CHIEF
    for number in range(1 if servers is None else servers):
        placed[-1 - number % nodes].append(SERVER)  # from the last node on: the first one has the chief
    programs = {role: _program("tensorFlowSettings", block, name) for role, name in _ARGUMENTS.items()}
    return Start("tensorflow", tuple(map(tuple, placed)), programs)


def _program(kind: str, block: Document, arguments: str) -> Program:
    words = _CONFIGURED.get(kind, "") if block.get(CONFIG) else ""
    path = block.get(CONFIG) or block.get(SCRIPT) or ""
    return Program(path, block.get(arguments) or "", words, block.get(INTERPRETER))


def _single(nodes: int) -> tuple[tuple[str, ...], ...]:
    return ((RANK,), *((),) * (nodes - 1))


def spread(ranks: int, nodes: int) -> tuple[int, ...]:
    """Returns how many ranks each node runs: evenly, the first ones taking what is left over."""
    each, left = divmod(ranks, nodes)
    return tuple(each + (index < left) for index in range(nodes))


def notes(properties: Document) -> list[str]:
    """Returns what somebody should know about a job's toolkit before it runs, a sentence each."""
    kind = kind_of(properties)
    found = [NEEDS[kind]] if kind in NEEDS else []
    backend = str((properties.get(kind) or {}).get("communicationBackend") or "").lower()
    if kind == "pyTorchSettings" and backend == "tcp":
        found.append("PyTorch has had no backend 'tcp' since version 1.0: use Gloo")
    if kind == "pyTorchSettings" and backend == "mpi":
        found.append("PyTorch's own wheels are built without MPI: use Gloo, or bring a PyTorch that has it")
    return found


def faults(kind: str, block: Document, nodes: int, gpus: int | None = None) -> list[tuple[str, str]]:
    """Returns what is wrong with a settings block: the field, and what it must be.

    Args:
        kind: its name.
        block: the block, whose fields have the right types.
        nodes: how many nodes the job has.
        gpus: how many GPUs a node has, None if that is not known.
    """
    if kind == "tensorFlowSettings":
        return _tensorflow_faults(block, nodes, gpus)
    if kind == "pyTorchSettings":
        return _backend_faults(block)
    if kind in _CONFIGURED:
        return _configuration_faults(block)
    if kind == "customToolkitSettings" and not block.get("commandLine"):
        return [("commandLine", "is missing")]
    return []


def _tensorflow_faults(block: Document, nodes: int, gpus: int | None) -> list[tuple[str, str]]:
    found = []
    workers, servers = block.get("workerCount"), block.get("parameterServerCount")
    if workers is not None and workers < 1:
        found.append(("workerCount", f"must be at least 1, not {workers}"))
    if workers is not None and gpus is not None and workers > nodes * max(1, gpus):
        most, what = nodes * max(1, gpus), f"nodeCount ({nodes}) times the GPUs of a node ({gpus})"
        found.append(("workerCount", f"must be at most {most}, {what}, not {workers}"))
    if servers is not None and not 0 <= servers <= nodes:
        found.append(("parameterServerCount", f"must be from 0 to nodeCount ({nodes}), not {servers}"))
    return found


def _backend_faults(block: Document) -> list[tuple[str, str]]:
    backend = block.get("communicationBackend")
    if backend is None or str(backend).lower() in BACKENDS:
        return []
    return [("communicationBackend", f"must be TCP, Gloo, MPI or NCCL, not {ascii(str(backend)[:40])}")]


def _configuration_faults(block: Document) -> list[tuple[str, str]]:
    """Checks the two languages of CNTK and Caffe: a configuration file, or a Python script with its interpreter."""
    config, script, language = block.get(CONFIG), block.get(SCRIPT), block.get("languageType")
    if config and script:
        return [(SCRIPT, f"cannot be given together with {CONFIG}")]
    if not config and not script:
        return [("", f"must hold {CONFIG} or {SCRIPT}")]
    if config and block.get(INTERPRETER):
        return [(INTERPRETER, f"can be given only with {SCRIPT}")]
    wanted = "BrainScript" if config else "Python"
    if language is not None and not re.fullmatch(wanted, str(language), re.IGNORECASE):
        return [
            ("languageType", f"must be {wanted} for a job with {CONFIG if config else SCRIPT}, not {ascii(language)}")
        ]
    return []
