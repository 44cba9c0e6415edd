"""The wheel of Horovod: from the cache, or built from the adapted source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from batchhvd.errors import HorovodBrokenError
from batchhvd.trainer.install.build_plan import BuildPlan, build_variables, parallel
from batchhvd.trainer.install.installation import COMMAND, cache
from batchhvd.trainer.install.package_manager import pip
from batchhvd.trainer.install.requirement import supply
from batchhvd.trainer.install.source import VERSION, unpack
from batchhvd.trainer.install.step_log import StepLog
from batchhvd.trainer.measure import ranks

#: What Horovod imports besides the framework.
_NEEDS = ("cloudpickle", "psutil", "pyyaml", "packaging")


def wheel(wanted: BuildPlan, archive: Path | None, steps: StepLog) -> Path:
    """Returns the wheel of a plan, from the cache or newly built."""
    folder = wanted.folder
    kept = sorted(folder.glob("*.whl"))
    if kept:
        steps.say(f"found the wheel in {folder}")
        return kept[0]
    supply(wanted, steps)
    pip(["install", "--quiet", "setuptools", "wheel", *imported(wanted)], steps, "installing what the build needs")
    with TemporaryDirectory(prefix="batchhvd-horovod-") as scratch:
        source = unpack(archive or _download(steps), Path(scratch))
        steps.say(f"unpacked and adapted the source of Horovod {VERSION}")
        built = _build(source, wanted, steps)
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / (built.name + ".part")
        shutil.copyfile(built, partial)
        return partial.rename(folder / built.name)


def imported(wanted: BuildPlan) -> list[str]:
    """Returns the packages that Horovod imports."""
    return [*_NEEDS, *(["cffi"] if "torch" in wanted.frameworks else [])]


def _download(steps: StepLog) -> Path:
    """Downloads the source archive into the cache, once."""
    path = cache() / f"horovod-{VERSION}.tar.gz"
    if not path.exists():
        with TemporaryDirectory(dir=cache(), prefix="download-") as folder:
            options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", folder]
            pip(["download", *options, f"horovod=={VERSION}"], steps, f"downloading the source of Horovod {VERSION}")
            Path(folder, path.name).rename(path)
    return path


def _build(source: Path, wanted: BuildPlan, steps: StepLog) -> Path:
    """Compiles and returns the wheel, in the folder of the source."""
    jobs = parallel()
    log = cache() / "build.log"
    steps.say(f"building for {wanted.names} with {wanted.compiler}, {jobs} at a time; log in {log}")
    options = ["--no-deps", "--no-build-isolation", "--verbose", "--wheel-dir", str(source / "dist")]
    process = subprocess.Popen(
        [_plain_python(source.parent), *ranks.python("-m", "pip", "wheel", *options, str(source))[1:]],
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
        raise HorovodBrokenError(
            f"Horovod did not build (exit code {process.returncode}): {ranks.tail(lines)}\nThe whole log is in {log}",
            found=str(log),
            remedy=COMMAND,
        )
    steps.say(f"built {built[0].name}, {built[0].stat().st_size / 1e6:.1f} MB")
    return built[0]


def _plain_python(scratch: Path) -> str:
    """Returns a path of this Python that has no blanks: Horovod's build takes its flags apart at blanks."""
    if " " not in sys.prefix:
        return sys.executable
    environment = scratch / "environment"
    environment.symlink_to(sys.prefix)
    return str(environment / Path(sys.executable).relative_to(sys.prefix))


def _follow(process: subprocess.Popen[str], log: Path, steps: StepLog) -> str:
    """Copies the output of a build to its log, prints the progress in steps of 20 %, and returns the output."""
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
    """Returns this environment without settings of Horovod that would change the build unknown to the plan."""
    kept = ("HOROVOD_CUDA_HOME", "HOROVOD_CMAKE")
    return {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_") or name in kept}
