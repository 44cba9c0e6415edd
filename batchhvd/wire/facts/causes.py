"""Why a job or a cluster is as it is: one table from an engine's reason to code, cause and next step.

The service writes the codes; ``explain()``, the command line and the status page put them into words.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import NamedTuple

from batchhvd.wire.facts.states import WireWord


class Cause(WireWord):
    """What a verdict can be."""

    SUCCEEDED = "succeeded"
    RUNNING = "running"
    WAITING_FOR_ENGINE = "waiting in the engine's own queue"
    WAITING_FOR_JOBS = "waiting for other jobs"
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
    EARLIER_JOB_FAILED = "earlier job failed"
    IMAGE_UNAVAILABLE = "image unavailable"
    CONTAINER_FAILED = "container failed"
    READY = "ready"
    RESIZING = "resizing"
    NOT_MADE = "not made"
    UNKNOWN = "unknown"


class Remedy(NamedTuple):
    """What to do next about a cause.

    Attributes:
        python: in Python calls, for ``explain()`` and errors.
        shell: in commands of ``batchhvd``, for the command line and the status page; NAME stands for the job's name.
    """

    python: str
    shell: str

    def named(self, name: str) -> Remedy:
        """Returns it with the job's name in place of NAME."""
        return Remedy(self.python, self.shell.replace("NAME", name))

    def after(self, origin: str) -> Remedy:
        """Returns it with the call or command that started the job, where it says to submit the job again.

        Args:
            origin: ``run SCRIPT``, ``submit FUNCTION``, or "" for a job file.
        """
        how, _, what = origin.partition(" ")
        again = _AGAIN
        if how == "run":
            again = Remedy(
                f"run it again with session.run({what!r}, …)", f"run it again (batchhvd run {quote(what)} …)"
            )
        elif how == "submit":
            again = Remedy(f"submit {what} again with experiment.submit(…)", f"submit the function {what} again")
        return Remedy(self.python.replace(_AGAIN.python, again.python), self.shell.replace(_AGAIN.shell, again.shell))


class Code(WireWord):
    """The codes of a job's first error: why it waits, or failed; ``JobFailed`` is Batch AI's for whatever ranks do."""

    WAITING = "Waiting"
    MOUNT_FAILED = "MountFailed"
    SCRIPT_NOT_FOUND = "ScriptNotFound"
    PREPARATION_FAILED = "JobPreparationFailed"
    RANK_FAILED = "RankFailed"
    JOB_FAILED = "JobFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    WALL_CLOCK_LIMIT = "WallClockLimit"
    TERMINATED = "JobTerminated"
    NODE_LOST = "NodeLost"
    HOROVOD_MISSING = "HorovodMissing"
    HOROVOD_BROKEN = "HorovodBroken"
    ENGINE_FAILED = "EngineFailed"
    DISK_FULL = "DiskFull"
    EARLIER_JOB_FAILED = "EarlierJobFailed"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    CONTAINER_FAILED = "ContainerFailed"


CODE_OF_REASON: Mapping[str, Code] = {
    "preparation": Code.PREPARATION_FAILED,
    "script": Code.SCRIPT_NOT_FOUND,
    "rank": Code.RANK_FAILED,
    "memory": Code.OUT_OF_MEMORY,
    "time": Code.WALL_CLOCK_LIMIT,
    "cancelled": Code.TERMINATED,
    "node": Code.NODE_LOST,
    "engine": Code.ENGINE_FAILED,
    "image": Code.IMAGE_UNAVAILABLE,
    "container": Code.CONTAINER_FAILED,
}
"""The code for each reason that an engine gives; a reason that is not listed is ``EngineFailed``."""

CAUSE_OF_CODE: Mapping[str, Cause] = {
    Code.MOUNT_FAILED: Cause.MOUNT_FAILED,
    Code.SCRIPT_NOT_FOUND: Cause.SCRIPT_MISSING,
    Code.PREPARATION_FAILED: Cause.PREPARATION_FAILED,
    Code.RANK_FAILED: Cause.RANK_FAILED,
    Code.JOB_FAILED: Cause.RANK_FAILED,
    Code.OUT_OF_MEMORY: Cause.OUT_OF_MEMORY,
    Code.WALL_CLOCK_LIMIT: Cause.WALL_CLOCK,
    Code.TERMINATED: Cause.TERMINATED,
    Code.NODE_LOST: Cause.NODE_LOST,
    Code.HOROVOD_MISSING: Cause.HOROVOD_MISSING,
    Code.HOROVOD_BROKEN: Cause.HOROVOD_BROKEN,
    Code.ENGINE_FAILED: Cause.ENGINE_FAILED,
    Code.DISK_FULL: Cause.DISK_FULL,
    Code.EARLIER_JOB_FAILED: Cause.EARLIER_JOB_FAILED,
    Code.IMAGE_UNAVAILABLE: Cause.IMAGE_UNAVAILABLE,
    Code.CONTAINER_FAILED: Cause.CONTAINER_FAILED,
}

GONE_WITH_THE_SERVICE = frozenset({Cause.NODE_LOST, Cause.ENGINE_FAILED})
"""What a service says of ranks that ended while it was down; a restart in between makes it ``SERVICE_RESTARTED``."""

_AGAIN = Remedy(
    "submit the job again with create_job(…, rerun=True)", "submit the job again (batchhvd job submit --rerun)"
)
_INSTALL = Remedy(
    f"run `python -m batchhvd.trainer.install` on the machine that runs the nodes, then {_AGAIN.python}",
    f"run `python -m batchhvd.trainer.install` on the machine that runs the nodes, then {_AGAIN.shell}",
)
REMEDIES: Mapping[Cause, Remedy] = {
    Cause.MOUNT_FAILED: Remedy(
        f"create the share, or correct the mount's account, share or key; then {_AGAIN.python}",
        f"create the share (batchhvd share create), or correct the mount in job.json; then {_AGAIN.shell}",
    ),
    Cause.SCRIPT_MISSING: Remedy(
        f"share.upload(…) the script to where the job looks for it, then {_AGAIN.python}",
        f"upload the script to where the job looks for it (batchhvd share upload), then {_AGAIN.shell}",
    ),
    Cause.PREPARATION_FAILED: Remedy(
        f"correct JobSpec.preparation, then {_AGAIN.python}",
        "read stderr-job_prep*.txt (batchhvd job files NAME lists it, batchhvd job logs NAME -f … shows it), "
        f"correct the preparation's command, then {_AGAIN.shell}",
    ),
    Cause.RANK_FAILED: Remedy(
        f"read job.stream('stderr.txt') for the whole output, fix the script, then {_AGAIN.python}",
        "read stderr.txt for the whole output (batchhvd job logs NAME -f stderr.txt), fix the script, "
        f"then {_AGAIN.shell}",
    ),
    Cause.OUT_OF_MEMORY: Remedy(
        f"lower the batch size, or the ranks on a node (JobSpec.task.processes), then {_AGAIN.python}",
        f"lower the batch size, or the ranks on a node (processCount), then {_AGAIN.shell}",
    ),
    Cause.WALL_CLOCK: Remedy(
        f"give JobSpec.max_seconds more time, or let the script resume from its checkpoint; then {_AGAIN.python}",
        f"give it more time (maxWallClockTime), or let the script resume from its checkpoint; then {_AGAIN.shell}",
    ),
    Cause.TERMINATED: Remedy(
        f"{_AGAIN.python} if it was not meant to end",
        f"{_AGAIN.shell} if it was not meant to end",
    ),
    Cause.SERVICE_RESTARTED: Remedy(
        f"{_AGAIN.python}; it resumes if its script keeps checkpoints",
        f"{_AGAIN.shell}; it resumes if its script keeps checkpoints",
    ),
    Cause.NODE_LOST: Remedy(
        f"look at cluster.explain(), then {_AGAIN.python}; it resumes if its script keeps checkpoints",
        f"look at batchhvd cluster explain, then {_AGAIN.shell}; it resumes if its script keeps checkpoints",
    ),
    Cause.HOROVOD_MISSING: _INSTALL,
    Cause.HOROVOD_BROKEN: _INSTALL,
    Cause.ENGINE_FAILED: Remedy(
        f"read the execution*.log files of job.files() and the service's log, then {_AGAIN.python}",
        f"read the execution*.log files (batchhvd job files NAME) and the service's log, then {_AGAIN.shell}",
    ),
    Cause.DISK_FULL: Remedy(
        f"free space on the disk of the service's folder, such as by deleting finished jobs; then {_AGAIN.python}",
        f"free space on the disk of the service's folder, such as by `batchhvd prune --older 30d`; then {_AGAIN.shell}",
    ),
    Cause.EARLIER_JOB_FAILED: Remedy(
        f"call explain() of that job, mend it, and {_AGAIN.python}; then do the same with this one",
        f"see why that job failed (batchhvd job explain), mend it, and {_AGAIN.shell}; then do the same with this one",
    ),
    Cause.IMAGE_UNAVAILABLE: Remedy(
        "correct the image's name, archive or credentials, pull it on the node (podman pull IMAGE), or give it as "
        f"oci-archive:PATH on a share; then {_AGAIN.python}",
        "correct the image's name, archive or credentials in job.json, pull it on the node (podman pull IMAGE), or "
        f"give it as oci-archive:PATH on a share; then {_AGAIN.shell}",
    ),
    Cause.CONTAINER_FAILED: Remedy(
        "see what the engine said above; the image needs /bin/sh, and the node a container engine that runs "
        f"(batchhvd doctor); then {_AGAIN.python}",
        "see what the engine said above; the image needs /bin/sh, and the node a container engine that runs "
        f"(batchhvd doctor); then {_AGAIN.shell}",
    ),
    Cause.UNKNOWN: Remedy("read the files of job.files()", "read its log files (batchhvd job files NAME)"),
}
_KILLED = Remedy(
    f"find out who killed it (a person, a limit, the kernel's log), then {_AGAIN.python}",
    f"find out who killed it (a person, a limit, the kernel's log), then {_AGAIN.shell}",
)
_FROM_OUTSIDE = frozenset({"9", "15"})  # SIGKILL and SIGTERM: no script sends them to itself by mistake


def remedy_of(cause: Cause, details: Mapping[str, str]) -> Remedy:
    """Returns what to do about a cause.

    Args:
        cause: the cause.
        details: the further facts of the job's first error, such as ``Signal``.
    """
    killed = cause is Cause.RANK_FAILED and details.get("Signal") in _FROM_OUTSIDE
    return _KILLED if killed else REMEDIES[cause]
