"""Checks what of batchhvd works on this machine, and names the command that fixes what does not."""

from __future__ import annotations

import difflib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata

from attrs import frozen

from batchhvd._version import __version__
from batchhvd.errors import EngineMissingError, HorovodMissingError, SpecError
from batchhvd.wire.facts.containers import CHOICES

ENGINES = ("processes", "slurm")
"""The engines that come with batchhvd."""

_CHECK_SECONDS = 180.0  # the check starts every installed Keras backend twice
_ENGINE_SECONDS = 20.0
_PACKAGES = {
    "client": (("azure-mgmt-batchai", "azure-mgmt-resource", "azure-mgmt-storage", "azure-storage-file-share"), ""),
    "service": (("starlette", "uvicorn", "httptools", "cryptography"), "[service]"),
    "trainer": (("keras", "scikit-learn"), "[trainer]"),
}
_BACKENDS = ("tensorflow", "torch", "jax")
_SLURM = ("sbatch", "squeue", "srun", "scancel")


@frozen
class CheckResult:
    """The result of one check.

    Attributes:
        what: what was checked.
        state: ``"ok"``, ``"missing"`` (a feature does not work), or ``"optional"`` (missing, and rarely needed).
        found: what was found, or what is missing.
        fix: the command that fixes it, or "".
    """

    what: str
    state: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        """Returns the result in a line, followed by the command if there is one."""
        mark = {"ok": "✓", "optional": "–"}.get(self.state, "✗")
        return f"{mark} {self.what:<14} {self.found}" + (f"\n{'':17}fix it with: {self.fix}" if self.fix else "")


def examine() -> Iterator[CheckResult]:
    """Yields the result of each check as soon as it is known; starts Horovod on two ranks, which takes some seconds."""
    yield from (_machine(), *_packages(), _backend())
    yield _horovod()
    yield from (_slurm(), _mpi(), _containers())


def glance() -> Iterator[CheckResult]:
    """Yields the result of each check that takes no time: Horovod is looked for and not tried."""
    yield from (_machine(), *_packages(), _backend(), _horovod_there(), _slurm(), _mpi(), _containers_there())


def refuse_engine(name: str, *, running: bool = False) -> None:
    """Raises an error for an engine that cannot run here, before anything is started.

    Args:
        name: the engine's name.
        running: whether a service runs already, whose engine has what it needs.

    Raises:
        SpecError: there is no such engine.
        EngineMissingError: its programs are not installed.
    """
    module, own, _ = name.partition(":")
    if name not in ENGINES and not (own and _can_import(module)):
        near = difflib.get_close_matches(name, ENGINES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        remedy = f"give --engine {' or '.join(ENGINES)}, or package.module:Class for one of your own{hint}"
        raise SpecError(f"there is no engine {name!r}", remedy=remedy)
    slurm = _slurm()
    if name == "slurm" and not running and slurm.state != "ok":
        raise EngineMissingError(f"the engine slurm is {slurm.found}; install it with {slurm.fix}", engine=name)


def refuse_training(*, horovod: bool) -> None:
    """Raises an error if this machine cannot train, before anything is started.

    Args:
        horovod: whether the training has several ranks.

    Raises:
        HorovodMissingError: something is not installed; the message has the command that installs it.
    """
    needed = [*_packages(), _backend(), *([_horovod_there()] if horovod else [])]
    missing = [result for result in needed if result.state == "missing"]
    if missing:
        found = "; ".join(f"{result.what}: {result.found}" for result in missing)
        fix = " && ".join(dict.fromkeys(result.fix for result in missing))
        raise HorovodMissingError(f"this machine cannot train yet ({found}); fix it with: {fix}", remedy=fix)


def _can_import(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _horovod_there() -> CheckResult:
    found = _version("horovod")
    if found or _can_import("horovod"):
        return CheckResult("Horovod", "ok", f"{found} (not tried)".strip())
    return _without_horovod()


def _without_horovod() -> CheckResult:
    """Ranks of PyTorch do without Horovod; those of TensorFlow, which Keras prefers, do not."""
    chosen = os.environ.get("KERAS_BACKEND") or ("tensorflow" if _can_import("tensorflow") else "torch")
    if chosen == "torch" and _can_import("torch"):
        return CheckResult("Horovod", "ok", "not installed; ranks of PyTorch exchange through torch.distributed")
    return CheckResult("Horovod", "missing", "not installed", f"{sys.executable} -m batchhvd.trainer.install")


def healthy(results: Sequence[CheckResult]) -> bool:
    """Whether everything that the tutorial needs is installed."""
    return all(result.state != "missing" for result in results)


def _machine() -> CheckResult:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, {cores} cores"
    return CheckResult("batchhvd", "ok", f"{__version__}, {python}")


def _packages() -> Iterator[CheckResult]:
    for what, (names, extra) in _PACKAGES.items():
        versions = {name: _version(name) for name in names}
        missing = [name for name, version in versions.items() if not version]
        if missing:
            yield CheckResult(what, "missing", f"without {', '.join(missing)}", _pip(f"batchhvd{extra}"))
        else:
            yield CheckResult(what, "ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _backend() -> CheckResult:
    found = [f"{name} {_version(name)}" for name in _BACKENDS if importlib.util.find_spec(name)]
    if found:
        return CheckResult("Keras backend", "ok", ", ".join(found))
    return CheckResult("Keras backend", "missing", "neither TensorFlow nor PyTorch", _pip("batchhvd[trainer]"))


def _horovod() -> CheckResult:
    """Runs the trainer's installer as a process, because it imports whole frameworks."""
    if not _can_import("horovod"):
        return _without_horovod()
    command = [sys.executable, "-m", "batchhvd.trainer.install"]
    try:
        done = subprocess.run(
            [*command, "--check"], capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return CheckResult("Horovod", "missing", f"did not answer within {_CHECK_SECONDS:.0f} s", " ".join(command))
    lines = [line.partition("] ")[2] or line for line in (done.stdout + done.stderr).strip().splitlines()]
    if done.returncode == 0:
        return CheckResult("Horovod", "ok", "; ".join(line for line in lines if not line.startswith("frameworks")))
    return CheckResult("Horovod", "missing", lines[-1] if lines else "no answer", " ".join(command))


def _slurm() -> CheckResult:
    missing = [name for name in _SLURM if not shutil.which(name)]
    if missing:
        return CheckResult("Slurm", "optional", f"without {', '.join(missing)}", "sudo apt-get install slurm-client")
    return CheckResult("Slurm", "ok", str(shutil.which("sbatch")))


def _mpi() -> CheckResult:
    launcher = shutil.which("mpirun")
    if launcher:
        return CheckResult("MPI launcher", "ok", launcher)
    return CheckResult(
        "MPI launcher", "optional", "without mpirun: no customMpiSettings", "pip install 'batchhvd[mpi]'"
    )


def _containers() -> CheckResult:
    """Asks each container engine whether it runs, as the service does: docker's daemon may not."""
    problems = []
    for name in (name for name in CHOICES[1:-1] if shutil.which(name)):
        said = _answer([name, "version"])
        if said is None:
            return CheckResult("Containers", "ok", f"{name} runs container images ({shutil.which(name)})")
        problems.append(f"{name} does not run: {said}")
    found = "; ".join(problems) or "without podman, docker and apptainer: container images are not run"
    return CheckResult("Containers", "optional", found, "sudo apt-get install podman")


def _containers_there() -> CheckResult:
    found = next((path for path in map(shutil.which, CHOICES[1:-1]) if path), None)
    return CheckResult("Containers", "ok", f"{found} (not tried)") if found else _containers()


def _answer(command: Sequence[str]) -> str | None:
    """Returns None if a command succeeds, otherwise the last line of what it says."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ENGINE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _pip(what: str) -> str:
    return f"{sys.executable} -m pip install '{what}'"
