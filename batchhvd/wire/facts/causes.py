"""Why a job or a cluster is as it is: one table from an engine's reason to code, cause and next step.

The service writes the codes; ``explain()``, the command line and the status page put them into words.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from batchhvd.wire.facts.states import WireWord


class Cause(WireWord):
    """What a verdict can be."""

    SUCCEEDED = "succeeded"
    RUNNING = "running"
    WAITING_FOR_NODES = "waiting for idle nodes"
    WAITING_FOR_RESIZE = "waiting for the cluster to resize"
    CLUSTER_TOO_SMALL = "cluster too small"
    CLUSTER_UNUSABLE = "nodes unusable"
    CLUSTER_GONE = "cluster gone"
    MOUNT_FAILED = "mount failed"
    SCRIPT_MISSING = "script missing"
    PREPARATION_FAILED = "preparation failed"
    RANK_FAILED = "rank failed"
    OUT_OF_MEMORY = "out of memory"
    WALL_CLOCK = "wall-clock limit"
    TERMINATED = "terminated"
    SERVICE_RESTARTED = "service restarted"
    NODE_LOST = "node lost"
    HOROVOD_MISSING = "Horovod missing"
    HOROVOD_BROKEN = "Horovod broken"
    ENGINE_FAILED = "engine failed"
    DISK_FULL = "disk full"
    READY = "ready"
    RESIZING = "resizing"
    NOT_MADE = "not made"
    UNKNOWN = "unknown"


class Remedy(NamedTuple):
    """What to do next about a cause.

    Attributes:
        python: in Python calls, for ``explain()`` and errors.
        shell: in commands of ``batchhvd``, for the command line and the status page.
    """

    python: str
    shell: str


class Code(WireWord):
    """The codes of a job's first error: why it waits, or failed."""

    WAITING = "Waiting"
    MOUNT_FAILED = "MountFailed"
    SCRIPT_NOT_FOUND = "ScriptNotFound"
    PREPARATION_FAILED = "JobPreparationFailed"
    RANK_FAILED = "RankFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    WALL_CLOCK_LIMIT = "WallClockLimit"
    TERMINATED = "JobTerminated"
    NODE_LOST = "NodeLost"
    HOROVOD_MISSING = "HorovodMissing"
    HOROVOD_BROKEN = "HorovodBroken"
    ENGINE_FAILED = "EngineFailed"
    DISK_FULL = "DiskFull"


CODE_OF_REASON: Mapping[str, Code] = {
    "preparation": Code.PREPARATION_FAILED,
    "script": Code.SCRIPT_NOT_FOUND,
    "rank": Code.RANK_FAILED,
    "memory": Code.OUT_OF_MEMORY,
    "time": Code.WALL_CLOCK_LIMIT,
    "cancelled": Code.TERMINATED,
    "node": Code.NODE_LOST,
    "engine": Code.ENGINE_FAILED,
}
"""The code for each reason that an engine gives; a reason that is not listed is ``EngineFailed``."""

CAUSE_OF_CODE: Mapping[str, Cause] = {
    Code.MOUNT_FAILED: Cause.MOUNT_FAILED,
    Code.SCRIPT_NOT_FOUND: Cause.SCRIPT_MISSING,
    Code.PREPARATION_FAILED: Cause.PREPARATION_FAILED,
    Code.RANK_FAILED: Cause.RANK_FAILED,
    Code.OUT_OF_MEMORY: Cause.OUT_OF_MEMORY,
    Code.WALL_CLOCK_LIMIT: Cause.WALL_CLOCK,
    Code.TERMINATED: Cause.TERMINATED,
    Code.NODE_LOST: Cause.NODE_LOST,
    Code.HOROVOD_MISSING: Cause.HOROVOD_MISSING,
    Code.HOROVOD_BROKEN: Cause.HOROVOD_BROKEN,
    Code.ENGINE_FAILED: Cause.ENGINE_FAILED,
    Code.DISK_FULL: Cause.DISK_FULL,
}

GONE_WITH_THE_SERVICE = frozenset({Cause.NODE_LOST, Cause.ENGINE_FAILED})
"""What a service says of ranks that ended while it was down; a restart in between makes it ``SERVICE_RESTARTED``."""

_INSTALL = "run `python -m batchhvd.trainer.install` on the machine that runs the nodes, then submit the job again"
REMEDIES: Mapping[Cause, Remedy] = {
    Cause.MOUNT_FAILED: Remedy(
        "create the share, or correct the mount's account, share or key; then submit the job again",
        "create the share (batchhvd share create), or correct the mount in job.json; then submit the job again",
    ),
    Cause.SCRIPT_MISSING: Remedy(
        "share.upload(…) the script to where the job looks for it, then submit the job again",
        "upload the script to where the job looks for it (batchhvd share upload), then submit the job again",
    ),
    Cause.PREPARATION_FAILED: Remedy(
        "correct JobSpec.preparation, then submit the job again",
        "read stderr-job_prep-*.txt (batchhvd job logs), correct the preparation's command, then submit the job again",
    ),
    Cause.RANK_FAILED: Remedy(
        "read job.stream('stderr.txt') for the whole output, fix the script, then submit the job again",
        "read stderr.txt for the whole output (batchhvd job logs -f stderr.txt), fix the script, "
        "then submit the job again",
    ),
    Cause.OUT_OF_MEMORY: Remedy(
        "lower the batch size, or the ranks on a node (JobSpec.task.processes), then submit the job again",
        "lower the batch size, or the ranks on a node (processCount), then submit the job again",
    ),
    Cause.WALL_CLOCK: Remedy(
        "give JobSpec.max_seconds more time, or resume from the last checkpoint in a new job",
        "give it more time (maxWallClockTime), or resume from the last checkpoint in a new job",
    ),
    Cause.TERMINATED: Remedy(
        "submit the job again under a new name if it was not meant to end",
        "submit the job again under a new name if it was not meant to end",
    ),
    Cause.SERVICE_RESTARTED: Remedy(
        "submit the job again; it resumes if its script keeps checkpoints",
        "submit the job again; it resumes if its script keeps checkpoints",
    ),
    Cause.NODE_LOST: Remedy(
        "look at cluster.explain(), then submit the job again; it resumes if its script keeps checkpoints",
        "look at batchhvd cluster explain, then submit the job again; it resumes if its script keeps checkpoints",
    ),
    Cause.HOROVOD_MISSING: Remedy(_INSTALL, _INSTALL),
    Cause.HOROVOD_BROKEN: Remedy(_INSTALL, _INSTALL),
    Cause.ENGINE_FAILED: Remedy(
        "read the execution-*.log files of job.files() and the service's log, then submit the job again",
        "read the execution-*.log files (batchhvd job files) and the service's log, then submit the job again",
    ),
    Cause.DISK_FULL: Remedy(
        "free space on the disk of the service's folder, such as by deleting finished jobs; then submit the job again",
        "free space on the disk of the service's folder, such as by `batchhvd prune --older 30d`; "
        "then submit the job again",
    ),
    Cause.UNKNOWN: Remedy("read the files of job.files()", "read its log files (batchhvd job files)"),
}
