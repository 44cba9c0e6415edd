"""The descriptions of jobs and clusters: frozen values, to and from the published files.

    JobSpec(nodes, task, logs, mounts, …)      task: Horovod, PyTorch, TensorFlow, CustomMpi, CustomToolkit, …
    ClusterSpec(vm_size, nodes, …)             nodes: a number or AutoScale (cluster.py)

A value read from a file and one written in Python are equal if they mean the same. Variables such as
``$AZ_BATCHAI_JOB_MOUNT_ROOT`` stay as they are: only the node knows their values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import timedelta

from attrs import evolve, field, frozen

from batchhvd.errors import SpecError
from batchhvd.spec import json_source, reading
from batchhvd.spec.cluster import AutoScale, ClusterSpec
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
from batchhvd.spec.mounts import Mount, MountPath, Volume
from batchhvd.spec.placeholders import Mountable
from batchhvd.spec.toolkits import (
    TOOLKITS,
    Caffe,
    Caffe2,
    Chainer,
    Cntk,
    CustomMpi,
    CustomToolkit,
    Horovod,
    InputDirectory,
    OtherToolkit,
    OutputDirectory,
    PyTorch,
    Task,
    TensorFlow,
    start_of,
)
from batchhvd.wire.facts.documents import Body, Document
from batchhvd.wire.facts.job_variables import ENGINE_OPTIONS
from batchhvd.wire.facts.states import JobPriority, JobPriorityWord
from batchhvd.wire.facts.times import write_duration

__all__ = [
    "AutoScale",
    "Caffe",
    "Caffe2",
    "Chainer",
    "ClusterSpec",
    "Cntk",
    "CustomMpi",
    "CustomToolkit",
    "Horovod",
    "InputDirectory",
    "JobSpec",
    "Mount",
    "MountPath",
    "OtherToolkit",
    "OutputDirectory",
    "PyTorch",
    "TensorFlow",
    "Volume",
]

_WITH_LOGS = "\0"  # until the directory of the logs is known
_FILE = "\0requirements"  # until it is in its own field
_KIND = "JobBaseProperties"
PRIORITIES = tuple(JobPriority)


def _check_nodes(_owner: object, _attribute: object, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise SpecError(
            f"nodes must be a whole number of at least 1, not {value!r}",
            pointer="/nodeCount",
            remedy="give a number such as 4",
        )


def _check_logs(owner: JobSpec, _attribute: object, value: str) -> None:
    if not value.strip() and not owner.code:
        remedy = 'give a directory on a mount, such as mount / "logs"; with code=FOLDER there need be none'
        raise SpecError("the directory for the logs is missing", pointer="/stdOutErrPathPrefix", remedy=remedy)


def _check_once(names: Iterable[str], pointer: str, how: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SpecError(f'"{name}" is {how} twice', pointer=pointer, remedy="keep one of them, or rename it")
        seen.add(name)


def _mounts(values: Iterable[Mount]) -> tuple[Mount, ...]:
    return tuple(values)


def _volumes(values: Iterable[Volume]) -> tuple[Volume, ...]:
    return tuple(values)


def _inputs(values: Iterable[InputDirectory]) -> tuple[InputDirectory, ...]:
    return tuple(values)


def _outputs(values: Iterable[OutputDirectory | str]) -> tuple[OutputDirectory, ...]:
    """Names stand for directories beside the logs, which are known only in the end."""
    return tuple(OutputDirectory(one, _WITH_LOGS, one) if isinstance(one, str) else one for one in values)


def _variables(values: Document | str | os.PathLike[str]) -> Document:
    """A path stands for a file of requirements, which is another field."""
    return {_FILE: os.fspath(values)} if isinstance(values, (str, os.PathLike)) else dict(values)


def _texts(values: Document) -> dict[str, str]:
    return {name.replace("_", "-"): str(value) for name, value in values.items()}


@frozen(kw_only=True)
class JobSpec:
    """The description of a job: what runs, on how many nodes, with which files.

    Attributes:
        nodes: how many nodes it gets, all at once.
        task: what runs; with ``code``, its script may be a path in that folder, such as ``"train.py"``.
        logs: the directory on a mount that receives the log files; with ``code``, "" for the share ``runs``.
        mounts: the file shares that it sees.
        volumes: other volumes.
        preparation: a shell command line that runs once on each node before, or None.
        image: the container image, or None.
        environment: variables of every process; or, instead, ``requirements``.
        secrets: variables whose values are never shown (or, instead of a value, the wire's reference to a vault).
        inputs: directories to read, by id.
        outputs: directories to write, by id; a name such as ``"model"`` stands for a directory beside the logs.
        engine_options: options of the service's engine for this job alone, such as ``{"partition": "gpu"}`` of Slurm's;
            an engine fails a job that has one it does not know.
        max_seconds: the longest time that it may run, or None for the service's default (a week).
        priority: ``"low"``, ``"normal"`` or ``"high"``.
        extra: all other ``properties`` as the wire has them; never shown.
        cluster: the id of the cluster that the file names; it is not used: the job runs where it is submitted.
        warnings: what looked odd in the file that it was read from.
        code: a local folder that is uploaded when the job is submitted, as ``Session.run`` does; None for none.
        requirements: a local file of requirements: the script runs in a virtual environment of them, which each machine
            makes once.
        content: the files that were uploaded for it, as they were when it was submitted: a checksum for each path.

    Raises:
        SpecError: a value is out of its range, or two mounts have one path.
    """

    nodes: int = field(validator=_check_nodes)
    task: Task
    logs: str = field(default="", converter=str, validator=_check_logs)
    mounts: tuple[Mount, ...] = field(default=(), converter=_mounts)
    volumes: tuple[Volume, ...] = field(default=(), converter=_volumes)
    preparation: str | None = None
    image: str | None = None
    environment: Mapping[str, str] = field(factory=dict, converter=_variables)
    secrets: Document = field(factory=dict, converter=_variables, repr=False)
    inputs: tuple[InputDirectory, ...] = field(default=(), converter=_inputs)
    outputs: tuple[OutputDirectory, ...] = field(default=(), converter=_outputs)
    engine_options: Mapping[str, str] = field(factory=dict, converter=_texts)
    max_seconds: float | None = None
    priority: JobPriority | JobPriorityWord = "normal"
    extra: Document = field(factory=dict, repr=False)
    code: str | os.PathLike[str] | None = None
    requirements: str | os.PathLike[str] | None = None
    cluster: str | None = field(default=None, eq=False, repr=False)
    warnings: tuple[str, ...] = field(default=(), eq=False, repr=False)
    content: Mapping[str, str] = field(factory=dict, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if _FILE in self.environment:
            object.__setattr__(self, "requirements", self.environment[_FILE])
            object.__setattr__(self, "environment", {})
        logs = self.logs or _WITH_LOGS
        placed = (evolve(one, prefix=logs) if one.prefix == _WITH_LOGS else one for one in self.outputs)
        object.__setattr__(self, "outputs", tuple(placed))
        if not isinstance(self.task, (*TOOLKITS.values(), OtherToolkit)):
            raise SpecError(f"{self.task!r} is not a task", remedy="give Horovod(…), PyTorch(…) or CustomToolkit(…)")
        if self.priority not in PRIORITIES:
            problem, remedy = f'"{self.priority}" is not a priority', f"allowed: {', '.join(PRIORITIES)}"
            raise SpecError(problem, pointer="/schedulingPriority", remedy=remedy)
        if self.max_seconds is not None and self.max_seconds <= 0:
            pointer = "/constraints/maxWallClockTime"
            raise SpecError(
                f"max_seconds must be more than 0, not {self.max_seconds}",
                pointer=pointer,
                remedy="give a number of seconds",
            )
        paths = [mount.path for mount in self.mounts] + [volume.path for volume in self.volumes]
        _check_once(paths, "/mountVolumes", "mounted")
        _check_once((directory.id for directory in self.inputs), "/inputDirectories", "given")
        _check_once((directory.id for directory in self.outputs), "/outputDirectories", "given")

    @property
    def ranks(self) -> int:
        """The total number of processes."""
        return sum(start_of(self.task, self.nodes).ranks)

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        account: object = None,
        mounts: Mapping[str, Mountable] | None = None,
    ) -> JobSpec:
        """Reads a job.json.

        Args:
            path: the file.
            account: the storage account in place of ``<AZURE_BATCHAI_STORAGE_ACCOUNT>``, by name or as an object.
            mounts: shares by the path where the file mounts them, instead of those that it names.

        Raises:
            SpecError: the file is wrong or a placeholder is left, with file, line, column and what would be right.
        """
        return cls._open(json_source.read(path), account, mounts)

    @classmethod
    def from_document(
        cls,
        document: Document,
        *,
        account: object = None,
        mounts: Mapping[str, Mountable] | None = None,
    ) -> JobSpec:
        """Returns the value of a document in the wire's shape, as ``read`` does for a file."""
        return cls._open(json_source.of(document), account, mounts)

    @classmethod
    def _from_job(cls, document: Document) -> JobSpec:
        """Returns the value of a job as the service shows it: what the service added is left out."""
        return cls(**reading.fields(JsonSource({"properties": reading.shown(document["properties"])})))

    @classmethod
    def _open(cls, source: JsonSource, account: object, mounts: Mapping[str, Mountable] | None) -> JobSpec:
        opened, notices = open_document(source, _KIND, account, mounts)
        fields = reading.fields(opened)
        with errors_at(opened, "/properties"):
            return cls(**fields, warnings=notices)

    def to_document(self) -> Body:
        """Returns the wire's document, without any key, password or secret value."""
        found: Body = without_secrets(self._document([{"name": name} for name in self.secrets]))
        return found

    def _request(self, cluster: str, keys: Mapping[str, str]) -> Body:
        """Returns the body that creates the job, keys and secret values included.

        Args:
            cluster: the id of the cluster that it runs on.
            keys: account keys by account name, for the accounts that need one.
        """
        body = self._document([_secret(name, value) for name, value in self.secrets.items()])
        body["properties"]["cluster"] = {"id": cluster}
        own = {mount.account: mount.key for mount in self.mounts if mount.key}
        found: Body = with_keys(body, {**keys, **own})
        return found

    def _accounts(self) -> tuple[str, ...]:
        """Returns the names of the storage accounts whose keys the request needs."""
        own = {mount.account for mount in self.mounts if mount.key}
        return tuple(name for name in accounts_without_key(self._document([])) if name not in own)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes a job.json, without any key, password or secret value."""
        write_document(path, "job", self.to_document())

    @property
    def _is_here(self) -> bool:
        """Whether it names files of this machine that must be uploaded first."""
        return self.code is not None or self.requirements is not None

    def _document(self, secrets: list[Body]) -> Body:
        if self._is_here:
            raise SpecError(
                "code and requirements are files of this machine, which no job.json can name",
                remedy="submit the job with create_job(), which uploads them; job.spec then has a job.json",
            )
        image = {"imageSourceRegistry": {"image": self.image}}
        longest = write_duration(timedelta(seconds=self.max_seconds)) if self.max_seconds else None
        options = {ENGINE_OPTIONS: json.dumps(self.engine_options)} if self.engine_options else {}
        fixed = {
            "schedulingPriority": self.priority if self.priority != JobPriority.NORMAL else None,
            "nodeCount": self.nodes,
            "stdOutErrPathPrefix": self.logs,
            "mountVolumes": self._volumes(),
            "jobPreparation": {"commandLine": self.preparation},
            "containerSettings": image,
            "inputDirectories": [directory.to_document() for directory in self.inputs],
            "outputDirectories": [directory.to_document() for directory in self.outputs],
            "environmentVariables": [
                {"name": name, "value": value} for name, value in {**self.environment, **options}.items()
            ],
            "secrets": secrets,
            "constraints": {"maxWallClockTime": longest},
        }
        cluster = {"cluster": {"id": self.cluster}} if self.cluster else {}
        task = {self.task.wire: self.task.to_document()}
        return {"properties": merge({**clean(fixed), **cluster, **task}, self.extra)}

    def _volumes(self) -> dict[str, list[Body]]:
        found = {"azureFileShares": [mount.to_document() for mount in self.mounts]}
        for volume in self.volumes:
            found.setdefault(volume.kind, []).append(volume.to_document())
        return found


def _secret(name: str, value: object) -> Body:
    return {"name": name, "valueSecretReference" if isinstance(value, Mapping) else "value": value}
