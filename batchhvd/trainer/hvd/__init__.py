"""Horovod for Keras 3, on the TensorFlow and the PyTorch backend; ``KERAS_BACKEND`` decides.

The names are Horovod's, so a script for ``horovod.keras`` or ``horovod.tensorflow.keras`` changes one import::

    import batchhvd.trainer.hvd as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    model.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

With one rank Horovod is not needed. With several, a missing or unusable Horovod raises `HorovodMissingError` or
`HorovodBrokenError`, whose message contains the command that fixes it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from batchhvd.trainer.hvd import departure, world
from batchhvd.trainer.hvd.binding import Compression, Op
from batchhvd.trainer.hvd.collective import (
    allgather,
    allgather_object,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    broadcast_object,
    grouped_allreduce,
    reducescatter,
)
from batchhvd.trainer.hvd.unsupported import refusal
from batchhvd.trainer.hvd.world import is_initialized, shutdown
from batchhvd.trainer.reporting import report

if TYPE_CHECKING:
    from batchhvd.trainer.hvd import callbacks
    from batchhvd.trainer.hvd.model_broadcast import broadcast_variables
    from batchhvd.trainer.hvd.optimizer import DistributedOptimizer, load_model
    from batchhvd.trainer.hvd.tape import DistributedGradientTape

Average = Op.AVERAGE
Sum = Op.SUM
Min = Op.MIN
Max = Op.MAX
Product = Op.PRODUCT

#: Names that need Keras, and are loaded on first use.
_LATER = {
    "DistributedGradientTape": "batchhvd.trainer.hvd.tape",
    "DistributedOptimizer": "batchhvd.trainer.hvd.optimizer",
    "broadcast_variables": "batchhvd.trainer.hvd.model_broadcast",
    "callbacks": "batchhvd.trainer.hvd.callbacks",
    "load_model": "batchhvd.trainer.hvd.optimizer",
}

__all__ = [
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "report",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise refusal(__name__, name)
    module = import_module(_LATER[name])
    return module if name == "callbacks" else getattr(module, name)


def init(comm: object = None, process_sets: object = None) -> None:
    """Joins the ranks of this job; with one rank it only notes that there are no others.

    The launcher sets the number of ranks in the environment. A second call has no effect. With several ranks, models
    are saved beside their path and renamed, so that ranks that save to one path leave one whole file.

    Args:
        comm, process_sets: Horovod's; only None is supported, which means all ranks.

    Raises:
        HorovodMissingError: There are several ranks, and Horovod is not installed.
        HorovodBrokenError: Horovod is installed, but not for this Keras backend or this launcher.
        SpecError: ``comm`` or ``process_sets`` was given.
    """
    before = is_initialized()
    world.init(comm, process_sets)
    if size() > 1 and not before:
        import_module("batchhvd.trainer.hvd.files").install(rank())
        departure.watch(rank(), size())


def rank() -> int:
    """Returns the number of this process among all ranks, from 0."""
    return world.world().rank


def size() -> int:
    """Returns how many ranks there are."""
    return world.world().size


def local_rank() -> int:
    """Returns the number of this process among the ranks of its node, from 0."""
    return world.world().local_rank


def local_size() -> int:
    """Returns how many ranks this node has."""
    return world.world().local_size


def cross_rank() -> int:
    """Returns the number of this process among the ranks with the same local rank, which is the number of its node."""
    return world.world().cross_rank


def cross_size() -> int:
    """Returns how many nodes have a rank with this local rank."""
    return world.world().cross_size


def gloo_built() -> bool:
    """Returns whether Horovod is in use and was built for gloo."""
    return _built("gloo_built")


def mpi_built() -> bool:
    """Returns whether Horovod is in use and was built for MPI."""
    return _built("mpi_built")


def nccl_built() -> bool:
    """Returns whether Horovod is in use and was built for NCCL."""
    return _built("nccl_built")


def gloo_enabled() -> bool:
    """Returns whether Horovod is in use and the ranks meet through gloo."""
    return _built("gloo_enabled")


def mpi_enabled() -> bool:
    """Returns whether Horovod is in use and the ranks meet through MPI."""
    return _built("mpi_enabled")


def mpi_threads_supported() -> bool:
    """Returns whether MPI is in use and may be called from several threads."""
    return mpi_enabled() and _built("mpi_threads_supported")


def ccl_built() -> bool:
    """Returns whether Horovod is in use and was built for oneCCL."""
    return _built("ccl_built")


def cuda_built() -> bool:
    """Returns whether Horovod is in use and was built for CUDA."""
    return _built("cuda_built")


def ddl_built() -> bool:
    """Returns whether Horovod is in use and was built for DDL."""
    return _built("ddl_built")


def rocm_built() -> bool:
    """Returns whether Horovod is in use and was built for ROCm."""
    return _built("rocm_built")


def is_homogeneous() -> bool:
    """Returns whether all nodes have the same number of ranks."""
    binding = world.world().binding
    return binding is None or bool(binding.module.mpi_ops.is_homogeneous())


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begins to record Horovod's operations into a file on each rank; with one rank there are none."""
    binding = world.world().binding
    if binding is not None:
        binding.module.start_timeline(file_path, mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """Ends the record that `start_timeline` began."""
    binding = world.world().binding
    if binding is not None:
        binding.module.stop_timeline()


def _built(name: str) -> bool:
    binding = world.world().binding
    return binding is not None and bool(getattr(binding.module, name)())
