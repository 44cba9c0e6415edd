"""Builds Horovod for the Keras backends that are here, once, keeps the wheel, installs it and proves it.

    python -m batchhvd.trainer.install [--backend tensorflow,torch|auto] [--mpi] [--nccl|--no-nccl]
    python -m batchhvd.trainer.install --check

The wheel lies in the user's cache under a name made of everything that decides it, so another environment with
the same frameworks takes seconds. ``--check`` installs nothing: it says what is there and what is missing, and
runs the proof. Linux on x86-64 and aarch64; other systems by guess.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import field, frozen

from batchhvd.errors import BatchHvdError, HorovodBroken, HorovodMissing
from batchhvd.trainer.install.build_plan import BACKENDS, Plan, build_variables, lacks, parallel, plan, supply
from batchhvd.trainer.install.source import VERSION, unpack
from batchhvd.trainer.measure import ranks

#: The command that error messages name.
COMMAND = f"{sys.executable} -m batchhvd.trainer.install"
#: What Horovod imports besides the framework.
_NEEDS = ("cloudpickle", "psutil", "pyyaml", "packaging")
_PROOF = """
import importlib, os
hvd = importlib.import_module("horovod." + os.environ["BATCHHVD_PROVE"])
hvd.init()
if os.environ["BATCHHVD_PROVE"] == "torch":
    import torch
    value = torch.full((3,), hvd.rank() + 1.0)
else:
    import tensorflow as tf
    value = tf.fill((3,), hvd.rank() + 1.0)
total = hvd.allreduce(value, op=hvd.Sum).numpy().tolist()
print("sum", total, "size", hvd.size())
hvd.shutdown()
raise SystemExit(0 if total == [3.0] * 3 else 1)
"""


@frozen
class Steps:
    """Says what is being done, one line a step with the seconds since the start."""

    clock: Callable[[], float] = time.monotonic
    start: float = field()

    @start.default
    def _now(self) -> float:
        return self.clock()

    def say(self, text: str) -> None:
        """Prints one line."""
        print(f"[{self.clock() - self.start:6.1f} s] {text}", flush=True)


def cache() -> Path:
    """Returns the folder of the wheels."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "batchhvd" / "horovod"


def installed() -> str:
    """Returns the version of Horovod in this environment, "" where there is none."""
    try:
        return metadata.version("horovod")
    except metadata.PackageNotFoundError:
        return ""


def install(
    backends: Sequence[str] = (),
    *,
    mpi: bool = False,
    nccl: bool | None = None,
    archive: Path | None = None,
    steps: Steps | None = None,
) -> Plan:
    """Makes sure that Horovod for these backends is built, installed and proved, and returns what it is.

    Args:
        backends: of "tensorflow" and "torch"; empty means every one that is installed.
        mpi: build for MPI too.
        nccl: build for GPUs; None means where there is one.
        archive: Horovod's source, for a machine without internet; None downloads it.
        steps: where to say what is done.

    Raises:
        HorovodMissing: something that the build needs is missing; the message has the command that installs it.
        HorovodBroken: the build or the proof failed.
    """
    steps = steps or Steps()
    wanted = plan(backends, mpi=mpi, nccl=nccl)
    if installed() == wanted.version and _stamp(wanted).exists():
        steps.say(f"Horovod {VERSION} for {_names(wanted)} is installed and proved: nothing to do")
        return wanted
    cache().mkdir(parents=True, exist_ok=True)
    with _lock(cache() / "lock", steps):
        if not wanted.compiler:
            _supply(wanted, steps)
            wanted = plan(backends, mpi=mpi, nccl=nccl)
        _install(wheel(wanted, archive, steps), wanted, steps)
        _prove_new(wanted, steps)
    return wanted


def _names(wanted: Plan) -> str:
    return " and ".join(f"{name} {version}" for name, version in wanted.frameworks.items())


def _stamp(wanted: Plan) -> Path:
    return cache() / wanted.key / ("proved-" + sha256(sys.prefix.encode()).hexdigest()[:12])


@contextmanager
def _lock(path: Path, steps: Steps) -> Iterator[None]:
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            steps.say(f"another build of Horovod is running; waiting for it ({path})")
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def wheel(wanted: Plan, archive: Path | None, steps: Steps) -> Path:
    """Returns the wheel of a plan, from the cache or freshly built."""
    folder = cache() / wanted.key
    kept = sorted(folder.glob("*.whl"))
    if kept:
        steps.say(f"found the wheel in {folder}")
        return kept[0]
    _supply(wanted, steps)
    _pip(["install", "--quiet", "setuptools", "wheel", *_needs(wanted)], steps, "installing what the build needs")
    with TemporaryDirectory(prefix="batchhvd-horovod-") as scratch:
        source = unpack(archive or _download(steps), Path(scratch))
        steps.say(f"unpacked and adapted the source of Horovod {VERSION}")
        built = _build(source, wanted, steps)
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / (built.name + ".part")
        shutil.copyfile(built, partial)
        return partial.rename(folder / built.name)


def _needs(wanted: Plan) -> list[str]:
    return [*_NEEDS, *(["cffi"] if "torch" in wanted.frameworks else [])]


def _supply(wanted: Plan, steps: Steps) -> None:
    """Installs what the machine lacks where that is allowed, else names it."""
    missing = lacks(wanted)
    if not missing:
        return
    what, command = ", ".join(lack.what for lack in missing), supply(missing)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise HorovodMissing(
            f"Horovod cannot be built: {what} missing; on Debian and Ubuntu install it with: {command}",
            found=what,
            remedy=command,
        )
    steps.say(f"missing: {what}; installing {' '.join(lack.package for lack in missing)}")
    _apt(["update"])
    _apt(["install", "-y", "--no-install-recommends", *(lack.package for lack in missing)])


def _apt(arguments: Sequence[str]) -> None:
    command = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300", *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise HorovodMissing(
            f"{' '.join(command)} failed with exit code {done.returncode}: {ranks.tail(done.stdout + done.stderr)}",
            remedy=" ".join(command),
        )


def _pip(arguments: Sequence[str], steps: Steps, what: str) -> None:
    steps.say(what)
    command = ranks.python("-m", "pip", "--disable-pip-version-check", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HorovodMissing(f"{what} failed: {ranks.tail(done.stdout + done.stderr)}", remedy=" ".join(command))


def _download(steps: Steps) -> Path:
    """Fetches the source archive once into the cache."""
    path = cache() / f"horovod-{VERSION}.tar.gz"
    if not path.exists():
        with TemporaryDirectory(dir=cache(), prefix="download-") as folder:
            options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", folder]
            _pip(["download", *options, f"horovod=={VERSION}"], steps, f"fetching the source of Horovod {VERSION}")
            Path(folder, path.name).rename(path)
    return path


def _build(source: Path, wanted: Plan, steps: Steps) -> Path:
    """Compiles and returns the wheel, which lies in the source's folder."""
    jobs = parallel()
    log = cache() / "build.log"
    steps.say(f"building for {_names(wanted)} with {wanted.compiler}, {jobs} at a time; log in {log}")
    options = ["--no-deps", "--no-build-isolation", "--verbose", "--wheel-dir", str(source / "dist")]
    process = subprocess.Popen(
        ranks.python("-m", "pip", "wheel", *options, str(source)),
        env={**_inherited(), **build_variables(wanted, jobs)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    lines = _follow(process, log, steps)
    built = sorted((source / "dist").glob("*.whl"))
    if process.returncode or not built:
        raise HorovodBroken(
            f"Horovod did not build (exit code {process.returncode}): {ranks.tail(lines)}\nThe whole log is in {log}",
            found=str(log),
            remedy=COMMAND,
        )
    steps.say(f"built {built[0].name}, {built[0].stat().st_size / 1e6:.1f} MB")
    return built[0]


def _follow(process: subprocess.Popen[str], log: Path, steps: Steps) -> str:
    """Copies a build's output to its log, says each fifth of the way, and returns the output."""
    said, lines = 0, []
    with log.open("w") as stream, process:
        for line in process.stdout or ():
            stream.write(line)
            lines.append(line)
            percent = re.match(r"\s*\[\s*(\d+)%\]", line)
            if percent and int(percent[1]) // 20 > said // 20:
                said = int(percent[1])
                steps.say(f"  {said} % compiled")
    return "".join(lines)


def _inherited() -> dict[str, str]:
    """Returns this environment without settings of Horovod that would change the build behind the plan's back."""
    kept = ("HOROVOD_CUDA_HOME", "HOROVOD_CMAKE")
    return {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_") or name in kept}


def _install(path: Path, wanted: Plan, steps: Steps) -> None:
    _pip(["install", "--quiet", *_needs(wanted)], steps, "installing what Horovod imports")
    options = ["install", "--quiet", "--no-deps", "--force-reinstall", str(path)]
    _pip(options, steps, f"installing {path.name} into {sys.prefix}")


def _prove_new(wanted: Plan, steps: Steps) -> None:
    """Proves what was installed; a wheel that fails is removed, so that the next run builds it anew."""
    try:
        prove(wanted, steps)
    except HorovodBroken:
        shutil.rmtree(cache() / wanted.key, ignore_errors=True)
        raise
    _stamp(wanted).touch()


def prove(wanted: Plan, steps: Steps) -> None:
    """Adds numbers of two ranks with each framework.

    Raises:
        HorovodBroken: that failed.
    """
    for name in wanted.frameworks:
        outcomes = ranks.run(ranks.python("-c", _PROOF), 2, variables=_proof_variables(name), timeout=300)
        failed = [outcome for outcome in outcomes if outcome.exit_code]
        if failed:
            raise HorovodBroken(
                f"Horovod is installed, but two ranks could not add numbers with {name}: "
                f"{ranks.tail(failed[0].output)}\nBuild it again with: {COMMAND}",
                found=installed(),
                remedy=COMMAND,
            )
        steps.say(f"proved with {name}: two ranks added their numbers over gloo")


def _proof_variables(name: str) -> Mapping[str, str]:
    return {"BATCHHVD_PROVE": name, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}


def check(wanted: Plan, steps: Steps) -> bool:
    """Says what is installed and what is missing, and proves it; True where all is well."""
    found = installed()
    steps.say(f"frameworks: {_names(wanted)}; compiler: {wanted.compiler or 'none'}; cache: {cache() / wanted.key}")
    missing = lacks(wanted)
    if missing:
        steps.say(f"for building there is missing: {', '.join(lack.what for lack in missing)}: {supply(missing)}")
    if not found:
        steps.say(f"Horovod is not installed; install it with: {COMMAND}")
        return False
    fits = found == wanted.version
    steps.say(f"Horovod {found} is installed" + ("" if fits else f", not the one that fits: {COMMAND}"))
    prove(wanted, steps)
    return fits


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    options = _options(argv)
    backends = () if options.backend == "auto" else tuple(options.backend.split(","))
    steps = Steps()
    try:
        if options.check:
            return 0 if check(plan(backends, mpi=options.mpi, nccl=options.nccl), steps) else 1
        install(backends, mpi=options.mpi, nccl=options.nccl, archive=options.archive, steps=steps)
    except BatchHvdError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m batchhvd.trainer.install", description=__doc__.split("\n")[0])
    parser.add_argument("--backend", default="auto", help=f"{','.join(BACKENDS)} or one of them; auto: all installed")
    parser.add_argument("--mpi", action="store_true", help="build for MPI too")
    parser.add_argument("--nccl", action=argparse.BooleanOptionalAction, help="build for GPUs; default: where possible")
    parser.add_argument("--archive", type=Path, help=f"horovod-{VERSION}.tar.gz, for a machine without internet")
    parser.add_argument("--check", action="store_true", help="install nothing; say what there is, and prove it")
    return parser.parse_args(argv)
