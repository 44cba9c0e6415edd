"""batchhvd: Batch AI's resource model, running again.

The public names are here. Most are loaded when they are first used, so importing the package costs next to nothing
and imports neither Azure's packages nor Keras.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from batchhvd._version import __version__
from batchhvd.errors import (
    AccessDeniedError,
    BadRequestError,
    BatchHvdError,
    ConflictError,
    EngineBusyError,
    EngineError,
    EngineMissingError,
    HorovodBrokenError,
    HorovodMissingError,
    JobFailedError,
    NotFoundError,
    RemoteError,
    ResourceFailedError,
    ServiceError,
    ServiceRetiredError,
    SpecError,
    UnavailableError,
    WaitTimeoutError,
)

if TYPE_CHECKING:
    from batchhvd.advice.explain import Verdict
    from batchhvd.advice.plan import Plan
    from batchhvd.logs.progress import Progress
    from batchhvd.logs.stream import LogStream
    from batchhvd.resources.base import Resource
    from batchhvd.resources.cluster import Cluster, NodeCounts
    from batchhvd.resources.container import Container
    from batchhvd.resources.distributed import DistributedFunction, MappedFunction, distributed, map
    from batchhvd.resources.experiment import Experiment
    from batchhvd.resources.function_future import FunctionFuture
    from batchhvd.resources.group import ResourceGroup
    from batchhvd.resources.job import Job
    from batchhvd.resources.session import Session, connect, local
    from batchhvd.resources.share import FileShare
    from batchhvd.resources.storage_account import StorageAccount
    from batchhvd.resources.sweep import Sweep
    from batchhvd.resources.values.file_entry import FileEntry
    from batchhvd.resources.values.listing import Listing
    from batchhvd.resources.values.metrics import Metrics
    from batchhvd.resources.values.node_login import NodeLogin
    from batchhvd.resources.values.trial import Trial
    from batchhvd.resources.values.usage import GpuUsage, RankUsage, Usage
    from batchhvd.resources.workspace import Workspace
    from batchhvd.spec.cluster import AutoScale, ClusterSpec
    from batchhvd.spec.job import (
        Caffe,
        Caffe2,
        Chainer,
        Cntk,
        CustomMpi,
        CustomToolkit,
        Horovod,
        InputDirectory,
        JobSpec,
        Mount,
        OtherToolkit,
        OutputDirectory,
        PyTorch,
        TensorFlow,
        Volume,
    )
    from batchhvd.transfer.copy import Transfer
    from batchhvd.wire.facts.causes import Cause
    from batchhvd.wire.reasons import Reason

# Where each of the other names is defined.
_LAZY = {
    "AutoScale": "spec.cluster",
    "Cause": "wire.facts.causes",
    "Cluster": "resources.cluster",
    "ClusterSpec": "spec.cluster",
    "Caffe": "spec.job",
    "Caffe2": "spec.job",
    "Chainer": "spec.job",
    "Cntk": "spec.job",
    "PyTorch": "spec.job",
    "TensorFlow": "spec.job",
    "CustomMpi": "spec.job",
    "CustomToolkit": "spec.job",
    "DistributedFunction": "resources.distributed",
    "Experiment": "resources.experiment",
    "FileEntry": "resources.values.file_entry",
    "NodeLogin": "resources.values.node_login",
    "Container": "resources.container",
    "FileShare": "resources.share",
    "FunctionFuture": "resources.function_future",
    "GpuUsage": "resources.values.usage",
    "Horovod": "spec.job",
    "InputDirectory": "spec.job",
    "Job": "resources.job",
    "JobSpec": "spec.job",
    "Listing": "resources.values.listing",
    "LogStream": "logs.stream",
    "MappedFunction": "resources.distributed",
    "Metrics": "resources.values.metrics",
    "Mount": "spec.job",
    "NodeCounts": "resources.cluster",
    "OtherToolkit": "spec.job",
    "OutputDirectory": "spec.job",
    "Plan": "advice.plan",
    "Progress": "logs.progress",
    "RankUsage": "resources.values.usage",
    "Reason": "wire.reasons",
    "Resource": "resources.base",
    "ResourceGroup": "resources.group",
    "Session": "resources.session",
    "StorageAccount": "resources.storage_account",
    "Sweep": "resources.sweep",
    "Transfer": "transfer.copy",
    "Trial": "resources.values.trial",
    "Usage": "resources.values.usage",
    "Verdict": "advice.explain",
    "Volume": "spec.job",
    "Workspace": "resources.workspace",
    "connect": "resources.session",
    "distributed": "resources.distributed",
    "local": "resources.session",
    "map": "resources.distributed",
}

__all__ = [
    "AccessDeniedError",
    "AutoScale",
    "BadRequestError",
    "BatchHvdError",
    "Caffe",
    "Caffe2",
    "Cause",
    "Chainer",
    "Cluster",
    "ClusterSpec",
    "Cntk",
    "ConflictError",
    "Container",
    "CustomMpi",
    "CustomToolkit",
    "DistributedFunction",
    "EngineBusyError",
    "EngineError",
    "EngineMissingError",
    "Experiment",
    "FileEntry",
    "FileShare",
    "FunctionFuture",
    "GpuUsage",
    "Horovod",
    "HorovodBrokenError",
    "HorovodMissingError",
    "InputDirectory",
    "Job",
    "JobFailedError",
    "JobSpec",
    "Listing",
    "LogStream",
    "MappedFunction",
    "Metrics",
    "Mount",
    "NodeCounts",
    "NodeLogin",
    "NotFoundError",
    "OtherToolkit",
    "OutputDirectory",
    "Plan",
    "Progress",
    "PyTorch",
    "RankUsage",
    "Reason",
    "RemoteError",
    "Resource",
    "ResourceFailedError",
    "ResourceGroup",
    "ServiceError",
    "ServiceRetiredError",
    "Session",
    "SpecError",
    "StorageAccount",
    "Sweep",
    "TensorFlow",
    "Transfer",
    "Trial",
    "UnavailableError",
    "Usage",
    "Verdict",
    "Volume",
    "WaitTimeoutError",
    "Workspace",
    "__version__",
    "connect",
    "distributed",
    "local",
    "map",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
