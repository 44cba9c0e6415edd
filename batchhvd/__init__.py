"""batchhvd: Batch AI's resource model, alive again.

The public names are here. Most are loaded when they are first used, so that importing the package costs next to nothing
and brings neither Azure's packages nor Keras along.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from batchhvd._version import __version__
from batchhvd.errors import (
    BatchHvdError,
    Conflict,
    EngineError,
    EngineMissing,
    HorovodBroken,
    HorovodMissing,
    JobFailed,
    NotAllowed,
    NotFound,
    Refused,
    ResourceFailed,
    ServiceError,
    ServiceRetired,
    SpecError,
    Unavailable,
    WaitTimeout,
)

if TYPE_CHECKING:
    from batchhvd.cluster import Cluster, NodeCounts
    from batchhvd.clusterspec import AutoScale, ClusterSpec
    from batchhvd.explain import Cause, Verdict
    from batchhvd.job import Job
    from batchhvd.jobspec import (
        CustomMpi,
        CustomToolkit,
        Horovod,
        InputDirectory,
        JobSpec,
        Mount,
        OtherToolkit,
        OutputDirectory,
        Volume,
    )
    from batchhvd.logstream import LogStream
    from batchhvd.metrics import Metrics
    from batchhvd.output import OutputFile
    from batchhvd.plan import Plan
    from batchhvd.resource import Listing, Reason, Resource
    from batchhvd.session import Session, connect, local
    from batchhvd.storage import Entry, FileShare, StorageAccount
    from batchhvd.transfer import Transfer
    from batchhvd.workspace import Experiment, ResourceGroup, Workspace

# Where each of the other names is defined.
_LAZY = {
    "AutoScale": "clusterspec",
    "Cause": "explain",
    "Cluster": "cluster",
    "ClusterSpec": "clusterspec",
    "CustomMpi": "jobspec",
    "CustomToolkit": "jobspec",
    "Entry": "storage",
    "Experiment": "workspace",
    "FileShare": "storage",
    "Horovod": "jobspec",
    "InputDirectory": "jobspec",
    "Job": "job",
    "JobSpec": "jobspec",
    "Listing": "resource",
    "LogStream": "logstream",
    "Metrics": "metrics",
    "Mount": "jobspec",
    "NodeCounts": "cluster",
    "OtherToolkit": "jobspec",
    "OutputDirectory": "jobspec",
    "OutputFile": "output",
    "Plan": "plan",
    "Reason": "resource",
    "Resource": "resource",
    "ResourceGroup": "workspace",
    "Session": "session",
    "StorageAccount": "storage",
    "Transfer": "transfer",
    "Verdict": "explain",
    "Volume": "jobspec",
    "Workspace": "workspace",
    "connect": "session",
    "local": "session",
}

__all__ = [
    "AutoScale",
    "BatchHvdError",
    "Cause",
    "Cluster",
    "ClusterSpec",
    "Conflict",
    "CustomMpi",
    "CustomToolkit",
    "EngineError",
    "EngineMissing",
    "Entry",
    "Experiment",
    "FileShare",
    "Horovod",
    "HorovodBroken",
    "HorovodMissing",
    "InputDirectory",
    "Job",
    "JobFailed",
    "JobSpec",
    "Listing",
    "LogStream",
    "Metrics",
    "Mount",
    "NodeCounts",
    "NotAllowed",
    "NotFound",
    "OtherToolkit",
    "OutputDirectory",
    "OutputFile",
    "Plan",
    "Reason",
    "Refused",
    "Resource",
    "ResourceFailed",
    "ResourceGroup",
    "ServiceError",
    "ServiceRetired",
    "Session",
    "SpecError",
    "StorageAccount",
    "Transfer",
    "Unavailable",
    "Verdict",
    "Volume",
    "WaitTimeout",
    "Workspace",
    "__version__",
    "connect",
    "local",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
