"""Makes sure that Horovod is built, installed and verified, by one process at a time."""

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
from batchhvd.trainer.install.requirement import supply
from batchhvd.trainer.install.source import VERSION
from batchhvd.trainer.install.step_log import StepLog
from batchhvd.trainer.install.verification import verify
from batchhvd.trainer.install.wheel import imported, wheel


def install(
    backends: Sequence[str] = (),
    *,
    mpi: bool = False,
    nccl: bool | None = None,
    archive: Path | None = None,
    steps: StepLog | None = None,
) -> BuildPlan:
    """Makes sure that Horovod for these backends is built, installed and verified, and returns its plan.

    Args:
        backends: of "tensorflow" and "torch"; empty means all that are installed.
        mpi: build for MPI too.
        nccl: build for GPUs; None means: if there is one.
        archive: Horovod's source, for a machine without internet access; None downloads it.
        steps: shows what is done.

    Raises:
        HorovodMissingError: Something that the build needs is missing; the message has the command that installs it.
        HorovodBrokenError: The build or the verification failed.
    """
    steps = steps or StepLog()
    wanted = plan(backends, mpi=mpi, nccl=nccl)
    if installed() == wanted.version and _stamp(wanted).exists():
        steps.say(f"Horovod {VERSION} for {wanted.names} is installed and verified: nothing to do")
        return wanted
    cache().mkdir(parents=True, exist_ok=True)
    with lock(cache() / "lock", steps):
        if not wanted.compiler:
            supply(wanted, steps)
            wanted = plan(backends, mpi=mpi, nccl=nccl)
        _install(wheel(wanted, archive, steps), wanted, steps)
        _verify_new(wanted, steps)
    return wanted


def _stamp(wanted: BuildPlan) -> Path:
    return wanted.folder / ("proved-" + sha256(sys.prefix.encode()).hexdigest()[:12])


@contextmanager
def lock(path: Path, steps: StepLog) -> Iterator[None]:
    """Lets one process build at a time; the others print that they wait."""
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


def _verify_new(wanted: BuildPlan, steps: StepLog) -> None:
    """Verifies what was installed; a wheel that fails is removed, so that the next run builds it again."""
    try:
        verify(wanted, steps)
    except HorovodBrokenError:
        shutil.rmtree(wanted.folder, ignore_errors=True)
        raise
    _stamp(wanted).touch()
