"""Makes sure that Horovod is built, installed and proved, one process at a time."""

from __future__ import annotations

import fcntl
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from batchhvd.errors import HorovodBrokenError
from batchhvd.trainer.install.build_plan import BuildPlan, plan
from batchhvd.trainer.install.installation import cache, installed
from batchhvd.trainer.install.package_manager import pip
from batchhvd.trainer.install.proof import prove
from batchhvd.trainer.install.requirement import supply
from batchhvd.trainer.install.source import VERSION
from batchhvd.trainer.install.step_log import StepLog
from batchhvd.trainer.install.wheel import imported, wheel


def install(
    backends: Sequence[str] = (),
    *,
    mpi: bool = False,
    nccl: bool | None = None,
    archive: Path | None = None,
    steps: StepLog | None = None,
) -> BuildPlan:
    """Makes sure that Horovod for these backends is built, installed and proved, and returns what it is.

    Args:
        backends: of "tensorflow" and "torch"; empty means every one that is installed.
        mpi: build for MPI too.
        nccl: build for GPUs; None means where there is one.
        archive: Horovod's source, for a machine without internet; None downloads it.
        steps: where to say what is done.

    Raises:
        HorovodMissingError: something that the build needs is missing; the message has the command that installs it.
        HorovodBrokenError: the build or the proof failed.
    """
    steps = steps or StepLog()
    wanted = plan(backends, mpi=mpi, nccl=nccl)
    if installed() == wanted.version and _stamp(wanted).exists():
        steps.say(f"Horovod {VERSION} for {wanted.names} is installed and proved: nothing to do")
        return wanted
    cache().mkdir(parents=True, exist_ok=True)
    with lock(cache() / "lock", steps):
        if not wanted.compiler:
            supply(wanted, steps)
            wanted = plan(backends, mpi=mpi, nccl=nccl)
        _install(wheel(wanted, archive, steps), wanted, steps)
        _prove_new(wanted, steps)
    return wanted


def _stamp(wanted: BuildPlan) -> Path:
    return wanted.folder / ("proved-" + sha256(sys.prefix.encode()).hexdigest()[:12])


@contextmanager
def lock(path: Path, steps: StepLog) -> Iterator[None]:
    """Lets one process build at a time; the others say that they wait."""
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            steps.say(f"another build of Horovod is running; waiting for it ({path})")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _install(path: Path, wanted: BuildPlan, steps: StepLog) -> None:
    pip(["install", "--quiet", *imported(wanted)], steps, "installing what Horovod imports")
    options = ["install", "--quiet", "--no-deps", "--force-reinstall", str(path)]
    pip(options, steps, f"installing {path.name} into {sys.prefix}")


def _prove_new(wanted: BuildPlan, steps: StepLog) -> None:
    """Proves what was installed; a wheel that fails is removed, so that the next run builds it anew."""
    try:
        prove(wanted, steps)
    except HorovodBrokenError:
        shutil.rmtree(wanted.folder, ignore_errors=True)
        raise
    _stamp(wanted).touch()
