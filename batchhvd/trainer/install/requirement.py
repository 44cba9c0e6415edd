"""What a build of Horovod requires and the machine does not have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from attrs import frozen

from batchhvd.errors import HorovodMissingError
from batchhvd.trainer.install.build_plan import BuildPlan
from batchhvd.trainer.install.package_manager import apt, apt_command
from batchhvd.trainer.install.step_log import StepLog

#: Headers that TensorFlow's wheel uses but does not contain, and the Debian packages that have them.
_TENSORFLOW_HEADERS = {"highwayhash/": "libhighwayhash-dev", "farmhash.h": "libfarmhash-dev"}
_PROBE = '#include "tensorflow/core/framework/op.h"\n#include "tensorflow/core/framework/op_kernel.h"\n'


@frozen
class Requirement:
    """Something that the build needs and the machine does not have.

    Attributes:
        what: its description.
        package: the Debian package that has it.
    """

    what: str
    package: str


def unmet(wanted: BuildPlan) -> list[Requirement]:
    """Returns what is missing on this machine to build a plan."""
    found = [
        Requirement(what, package)
        for program, what, package in (
            (os.environ.get("CXX", "g++"), "a C++ compiler", "g++"),
            (os.environ.get("HOROVOD_CMAKE", "cmake"), "cmake", "cmake"),
            ("make", "make", "make"),
        )
        if not shutil.which(program)
    ]
    python = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    if "torch" in wanted.frameworks and not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        found.append(Requirement("Python.h", python))
    if "tensorflow" in wanted.frameworks and wanted.compiler:
        found += _missing_headers()
    return found


def _missing_headers() -> list[Requirement]:
    """Asks the preprocessor which headers the headers of TensorFlow do not find."""
    spec = find_spec("tensorflow")
    folders = list(spec.submodule_search_locations or []) if spec else []
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-M", "-MG", "-x", "c++", "-"]
    command += [f"-I{folder}/include" for folder in folders]
    done = subprocess.run(command, input=_PROBE, capture_output=True, text=True, check=False)
    names = done.stdout.replace("\\\n", " ").split()
    return [
        Requirement(header.rstrip("/") + " (headers)", package)
        for header, package in _TENSORFLOW_HEADERS.items()
        if any(name.startswith(header) for name in names)
    ]


def supply_command(missing: list[Requirement]) -> str:
    """Returns the command that installs what is missing."""
    return (
        ("" if os.geteuid() == 0 else "sudo sh -c '")
        + apt_command(requirement.package for requirement in missing)
        + ("" if os.geteuid() == 0 else "'")
    )


def supply(wanted: BuildPlan, steps: StepLog) -> None:
    """Installs what is missing if this process may do so, otherwise raises an error that names it.

    Raises:
        HorovodMissingError: Something is missing, and this process is not root or there is no ``apt-get``.
    """
    missing = unmet(wanted)
    if not missing:
        return
    what, command = ", ".join(requirement.what for requirement in missing), supply_command(missing)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise HorovodMissingError(
            f"Horovod cannot be built: {what} missing; on Debian and Ubuntu install it with: {command}",
            found=what,
            remedy=command,
        )
    steps.say(f"missing: {what}; installing {' '.join(requirement.package for requirement in missing)}")
    apt(["update"])
    apt(["install", "-y", "--no-install-recommends", *(requirement.package for requirement in missing)])
