"""What a build of Horovod depends on: the plan, which names the wheel, and the settings of the build."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from attrs import frozen

from batchhvd.errors import HorovodMissingError
from batchhvd.trainer.install.installation import BACKENDS, cache, framework_version
from batchhvd.trainer.install.package_manager import apt_command
from batchhvd.trainer.install.source import VERSION, fingerprint

#: Standard headers that the release forgets to include, and that gcc 13 no longer includes by chance.
_INCLUDES = ("string", "cstdint", "memory", "functional", "stdexcept", "sstream", "algorithm")
#: Memory that one compiler needs for the frameworks' headers, in bytes.
_COMPILER_MEMORY = 2 * 1024**3


@frozen
class BuildPlan:
    """Everything that determines what is built.

    Attributes:
        frameworks: versions by module name, of the modules in `BACKENDS`.
        python: the tag of the interpreter's binary interface, such as "cpython-311-x86_64-linux-gnu".
        compiler: name and version, "" if there is none.
        mpi: path of the MPI compiler, "" for gloo only.
        nccl: folder and version of NCCL for GPUs, "" without GPUs.
    """

    frameworks: Mapping[str, str]
    python: str
    compiler: str
    mpi: str = ""
    nccl: str = ""

    @property
    def key(self) -> str:
        """The name of the wheel's folder in the cache: readable, and different for each different wheel."""
        parts = [VERSION, *(f"{name}{version}" for name, version in self.frameworks.items()), self.python]
        parts += [self.compiler.replace(" ", ""), "gloo", *(["mpi"] if self.mpi else []), self.nccl.split(" ")[-1]]
        return "-".join(part for part in parts if part) + f"-{self.digest}"

    @property
    def digest(self) -> str:
        """Eight hex digits of everything in the plan and of the changed source."""
        text = repr((sorted(self.frameworks.items()), self.python, self.compiler, self.mpi, self.nccl, fingerprint()))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def version(self) -> str:
        """The version that the wheel carries, with the digest as its local part."""
        return f"{VERSION}+batchhvd.{self.digest}"

    @property
    def folder(self) -> Path:
        """Where the wheel is kept."""
        return cache() / self.key

    @property
    def names(self) -> str:
        """The frameworks and their versions, for a message."""
        return " and ".join(f"{name} {version}" for name, version in self.frameworks.items())


def plan(backends: Iterable[str] = (), *, mpi: bool = False, nccl: bool | None = None) -> BuildPlan:
    """Returns what would be built in this environment.

    Args:
        backends: of `BACKENDS`; empty means all that are installed.
        mpi: build for MPI too.
        nccl: build for GPUs; None means: if there are a GPU, its compiler and NCCL.

    Raises:
        HorovodMissingError: A backend, MPI or NCCL was asked for and is not installed.
    """
    wanted = tuple(backends)
    frameworks = {name: version for name in BACKENDS if (version := framework_version(name))}
    absent = [name for name in wanted if name not in frameworks]
    if absent or not frameworks:
        names = " ".join(absent) or "tensorflow"
        raise HorovodMissingError(
            f"Horovod is built for a framework, and {names} is not installed in {sys.prefix}",
            found=", ".join(frameworks) or "no framework",
            remedy=f"{sys.executable} -m pip install {names}",
        )
    chosen = {name: version for name, version in frameworks.items() if not wanted or name in wanted}
    return BuildPlan(
        chosen,
        str(sysconfig.get_config_var("SOABI") or f"{sys.implementation.cache_tag}-{platform.machine()}"),
        _compiler(),
        _mpi() if mpi else "",
        _nccl(nccl),
    )


def _compiler() -> str:
    program = shutil.which(os.environ.get("CXX", "g++"))
    if not program:
        return ""
    version = _output([program, "-dumpfullversion", "-dumpversion"]).strip()
    return f"{Path(program).name} {version}"


def _mpi() -> str:
    program = shutil.which("mpicxx")
    if not program:
        raise HorovodMissingError("--mpi needs an MPI with its compiler mpicxx", remedy=apt_command(["libopenmpi-dev"]))
    return program


def _nccl(wanted: bool | None) -> str:
    """Returns the folder and version of NCCL, or "" if it is not used."""
    if wanted is False or (wanted is None and not _has_gpu()):
        return ""
    folder = next(iter(Path(sysconfig.get_path("purelib")).glob("nvidia/nccl")), None)
    problem = "no CUDA compiler nvcc" if not _nvcc() else "no package nvidia-nccl" if not folder else ""
    if problem and wanted:
        raise HorovodMissingError(
            f"--nccl was given, but there is {problem}",
            found=problem,
            remedy="install the CUDA toolkit, and a PyTorch for CUDA, which brings NCCL",
        )
    return "" if problem else f"{folder} {_nccl_version()}"


def _has_gpu() -> bool:
    return bool(shutil.which("nvidia-smi")) and "GPU 0" in _output(["nvidia-smi", "-L"])


def _nvcc() -> str:
    home = os.environ.get("HOROVOD_CUDA_HOME") or os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin") or ""


def _nccl_version() -> str:
    names = metadata.packages_distributions().get("nvidia", [])
    found = sorted(f"{name.lower()}{metadata.version(name)}" for name in names if "nccl" in name.lower())
    return found[0] if found else "nccl"


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def parallel() -> int:
    """Returns how many compilers may run at a time: limited by the cores and the memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // _COMPILER_MEMORY))


def build_variables(wanted: BuildPlan, jobs: int) -> dict[str, str]:
    """Returns the variables that are added to the environment of the build.

    Source: Horovod's docs/install.rst; cmake 4 refuses bundled gloo without CMAKE_POLICY_VERSION_MINIMUM.
    """
    frameworks = {"TENSORFLOW": "tensorflow", "PYTORCH": "torch", "MXNET": ""}
    chosen = {
        f"HOROVOD_WITH{'' if module in wanted.frameworks else 'OUT'}_{name}": "1" for name, module in frameworks.items()
    }
    return {
        **chosen,
        f"HOROVOD_WITH{'' if wanted.mpi else 'OUT'}_MPI": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_LOCAL_VERSION": wanted.version.partition("+")[2],
        "HOROVOD_SHARED_COMMON": "1" if _can_share(wanted) else "0",
        "CXXFLAGS": " ".join(f"-include {name}" for name in _INCLUDES),
        "LDFLAGS": "-s",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "MAKEFLAGS": f"-j{jobs}",
        **(_gpu_variables(wanted.nccl.split(" ")[0]) if wanted.nccl else {}),
    }


def _can_share(wanted: BuildPlan) -> bool:
    """Returns whether both frameworks can link the same objects: same C++ library ABI, same use of CUDA."""
    if "torch" not in wanted.frameworks:
        return True
    if len(wanted.frameworks) == 1:
        return False  # there is no second framework to share with
    code = (
        "import torch; from torch.utils.cpp_extension import CUDA_HOME; "
        "print(torch.compiled_with_cxx11_abi(), bool(torch.version.cuda and CUDA_HOME))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modern, cuda = done.stdout.split()[-2:]
    return modern == "True" and (cuda == "True") == bool(wanted.nccl)


def _gpu_variables(folder: str) -> dict[str, str]:
    """Returns the variables for GPUs, and links the library of NCCL to the name that the linker looks for."""
    library = Path(folder, "lib", "libnccl.so")
    if not library.exists():
        library.symlink_to("libnccl.so.2")
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    found = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
    return {
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_NCCL_HOME": folder,
        "HOROVOD_NCCL_LINK": "SHARED",  # PyTorch's own; a static library would make the wheel 189 MB
        "HOROVOD_BUILD_CUDA_CC_LIST": ",".join(sorted({capability.replace(".", "") for capability in found})),
    }
