"""Horovod, or what stands for it, on PyTorch, in eager code and under ``torch.compile``.

The reduction of gradients is a custom operator: the compiler sees one opaque call with known shapes, keeps it in
its graph and runs it at every step, instead of tracing into Horovod and keeping the values that it saw there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from batchhvd.trainer.hvd.binding import Compressor, Op

if TYPE_CHECKING:
    import numpy as np

_modules: list[ModuleType] = []  # what the operator uses: the compiler hands it tensors and words only
_SCHEMA = "(Tensor[] tensors, str name, str op, bool half) -> Tensor[]"


class TorchBinding:
    """Implements `binding.Binding` with ``horovod.torch``, or with `exchange.torch_distributed.TorchDistributed`."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        _modules[:] = [module]

    def owns(self, value: object) -> bool:
        """Returns whether a value is a tensor of PyTorch."""
        return isinstance(value, torch.Tensor)

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        """Converts a numpy array to a tensor on the CPU."""
        return torch.as_tensor(array)

    def array(self, tensor: torch.Tensor) -> np.ndarray:
        """Converts a tensor to a numpy array."""
        array: np.ndarray = tensor.detach().cpu().numpy()
        return array

    def reduce(self, tensors: Sequence[torch.Tensor], name: str, op: Op, compression: Compressor) -> list[torch.Tensor]:
        """Reduces tensors over all ranks, those of one type as a group; sparse ones become dense."""
        dense = [tensor.to_dense() if tensor.is_sparse else tensor for tensor in tensors]
        found: list[torch.Tensor] = torch.ops.batchhvd.allreduce(dense, name, op.value, compression.half)
        return found

    def require_equal(self, found: torch.Tensor, expected: torch.Tensor, message: str) -> None:
        """Raises an error unless two numbers are equal; not in compiled code, and not on a GPU, which must not wait."""
        if torch.compiler.is_compiling() or found.is_cuda:
            return
        if abs(float(found) - float(expected)) > 0.01:
            raise RuntimeError(message)

    def gather(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Joins tensors of all ranks along the first dimension."""
        return _carried(tensor, lambda value: self.module.allgather(value, name=name), self.module)

    def broadcast(self, tensor: torch.Tensor, root: int, name: str) -> torch.Tensor:
        """Returns the tensor of one rank on all ranks."""
        return _carried(tensor, lambda value: self.module.broadcast(value, root, name=name), self.module)


def _carried(tensor: torch.Tensor, call: Callable[[torch.Tensor], torch.Tensor], module: ModuleType) -> torch.Tensor:
    """Runs a collective operation on the GPU if Horovod has NCCL, otherwise on the CPU."""
    if tensor.device.type == "cpu" or module.nccl_built():
        return _arrived(call(tensor))
    return call(tensor.cpu()).to(tensor.device)


def _arrived(tensor: torch.Tensor) -> torch.Tensor:
    """Makes later work on the stream of this thread wait for the result of Horovod.

    With ``HOROVOD_ENABLE_ASYNC_COMPLETION`` Horovod returns before NCCL has finished, and makes a stream wait for it:
    the default stream, which is the current stream of its own thread (horovod/torch/mpi_ops_v2.cc, GetGPUStream).
    """
    if tensor.is_cuda:
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
    return tensor


def _allreduce(tensors: list[torch.Tensor], name: str, op: str, half: bool) -> list[torch.Tensor]:
    (module,) = _modules
    groups: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for place, tensor in enumerate(tensors):
        groups.setdefault((tensor.dtype, tensor.device), []).append(place)
    reduced: list[torch.Tensor] = [None] * len(tensors)
    for (dtype, _), places in groups.items():
        group = [tensors[place].contiguous() for place in places]
        found = _reduce_group(module, group, f"{name}.{dtype}", op, half)
        for place, tensor in zip(places, found, strict=True):
            reduced[place] = tensor
    return reduced


def _reduce_group(
    module: ModuleType, tensors: list[torch.Tensor], name: str, op: str, half: bool
) -> list[torch.Tensor]:
    dtype, device = tensors[0].dtype, tensors[0].device
    if half and dtype in (torch.float32, torch.float64):
        share = 1.0 / module.size() if op == Op.AVERAGE.value else 1.0
        tensors = [(tensor * share).half() for tensor in tensors]
        op = Op.SUM.value if op == Op.AVERAGE.value else op
    if dtype is torch.bfloat16:  # Horovod does not know it
        tensors = [tensor.float() for tensor in tensors]
    if device.type != "cpu" and not module.nccl_built():
        tensors = [tensor.cpu() for tensor in tensors]
    handle = module.grouped_allreduce_async(tensors, name=name, op=getattr(module, op))
    found = module.synchronize(handle)
    _arrived(found[0])
    return [tensor.to(device, dtype) for tensor in found]


def _shapes(tensors: list[torch.Tensor], name: str, op: str, half: bool) -> list[torch.Tensor]:
    """Tells the compiler what the operator returns: new tensors with the shapes of its arguments."""
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]


_operator = torch.library.custom_op("batchhvd::allreduce", _allreduce, mutates_args=(), schema=_SCHEMA)
_operator.register_fake(_shapes)
