"""What must be decided before Keras is imported: backend, threads, oneDNN, and the GPU of this rank.

Frameworks read these environment variables once, when they are imported. Values that the user has set are kept.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from types import ModuleType

from batchhvd.errors import SpecError
from batchhvd.trainer.reporting import training_record

GPU_DRIVER = Path("/dev/nvidiactl")
LOCAL_RANK = ("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
LOCAL_SIZE = ("HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE")


def prepare(environ: MutableMapping[str, str] | None = None, cores: int | None = None) -> str:
    """Sets the variables that are not set yet, and returns the name of the Keras backend.

    Args:
        environ: the environment to change; None means that of this process.
        cores: how many cores this process may use; None asks the system.

    Raises:
        SpecError: Neither TensorFlow nor PyTorch is installed.
    """
    environ = os.environ if environ is None else environ
    cores = cores or len(os.sched_getaffinity(0))
    threads = str(max(1, cores // _first(environ, LOCAL_SIZE, 1)))
    settings = {
        "KERAS_BACKEND": environ.get("KERAS_BACKEND") or _installed(),
        "TF_ENABLE_ONEDNN_OPTS": "1",  # off by default on some processors; makes this training 1.4 to 2.5 times as fast
        "TF_NUM_INTRAOP_THREADS": threads,
        "TF_NUM_INTEROP_THREADS": "1",
        "OMP_NUM_THREADS": threads,
        "TF_CPP_MIN_LOG_LEVEL": "2",  # hides the notices about missing GPUs that every rank prints
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    }
    if GPU_DRIVER.exists():
        # At hundreds of steps a second the host must stay ahead of the GPU: Horovod's usual cycle of 1 ms is too long,
        # and the host must not wait until the gradients have arrived.
        settings |= {"HOROVOD_CYCLE_TIME": "0.1", "HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}
        # What PyTorch compiles is kept for the next training; its own choice is a temporary folder.
        settings["TORCHINDUCTOR_CACHE_DIR"] = str(_cache(environ) / "compiled")
    for name, value in settings.items():
        environ.setdefault(name, value)
    _pin(environ)
    return environ["KERAS_BACKEND"]


def _cache(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchhvd"


def as_shown(path: Path, environ: Mapping[str, str] | None = None) -> Path:
    """Returns a path as people find it again: in a job, below the shares that it mounts (``myshare/…``).

    The folder that the shares are mounted in ends with the job.
    """
    root = (os.environ if environ is None else environ).get("AZ_BATCHAI_JOB_MOUNT_ROOT")
    return path.relative_to(root) if root and path.is_relative_to(root) else path


def _pin(environ: MutableMapping[str, str]) -> None:
    # One GPU for each rank of a node. Without GPUs the variable has no effect.
    local_rank = _first(environ, LOCAL_RANK, -1)
    if local_rank >= 0 and _first(environ, LOCAL_SIZE, 1) > 1:
        visible = environ.get("CUDA_VISIBLE_DEVICES", "")
        devices = visible.split(",") if visible else [str(number) for number in range(local_rank + 1)]
        environ["CUDA_VISIBLE_DEVICES"] = devices[local_rank % len(devices)]


def _first(environ: MutableMapping[str, str], names: tuple[str, ...], otherwise: int) -> int:
    return next((int(environ[name]) for name in names if environ.get(name, "").isdigit()), otherwise)


def _installed() -> str:
    for package in ("tensorflow", "torch"):
        if importlib.util.find_spec(package):
            return package
    raise SpecError("neither TensorFlow nor PyTorch is installed", remedy="pip install 'batchhvd[trainer]'")


def precision(wanted: str = "auto", cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Returns the Keras dtype policy: ``"mixed_bfloat16"`` if the hardware multiplies bfloat16 fast.

    GPUs since Ampere do, and so do processors with AMX, on which the tutorial's network trains three times as fast.
    Weights stay in float32. On systems other than Linux, which have no ``cpuinfo``, the answer is ``"float32"``.

    Args:
        wanted: ``"float32"``, ``"bfloat16"``, or ``"auto"``.
        cpuinfo: the file in which the system lists the features of the processor.
    """
    if wanted != "auto":
        return "mixed_bfloat16" if wanted == "bfloat16" else wanted
    fast = _bfloat16_gpu() or (cpuinfo.exists() and "amx_bf16" in cpuinfo.read_text())
    return "mixed_bfloat16" if fast else "float32"


def compiled(wanted: str = "auto") -> bool:
    """Returns whether the training step is compiled and recorded; ``"auto"`` does so if PyTorch uses a GPU."""
    return gpu() if wanted == "auto" else wanted == "compiled"


def seed(number: int) -> None:
    """Seeds Python, numpy and the Keras backend.

    Keras's own ``set_random_seed`` does the same, but on the PyTorch backend it also imports TensorFlow if installed.
    """
    import random

    import keras
    import numpy as np

    training_record.note("seed", number)
    if keras.config.backend() != "torch":
        keras.utils.set_random_seed(number)
        return
    random.seed(number)
    np.random.seed(number)
    _torch().manual_seed(number)


def _bfloat16_gpu() -> bool:
    return gpu() and _torch().cuda.get_device_capability()[0] >= 8


def gpu() -> bool:
    """Returns whether PyTorch is the backend and can use an NVIDIA GPU."""
    return os.environ.get("KERAS_BACKEND") == "torch" and bool(_torch().cuda.is_available())


def gpu_name() -> str:
    """Returns PyTorch's name of the GPU of this rank."""
    return str(_torch().cuda.get_device_name())


def _torch() -> ModuleType:
    return importlib.import_module("torch")
