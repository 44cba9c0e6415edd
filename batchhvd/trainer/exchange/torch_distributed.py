"""The functions of ``horovod.torch`` that the binding uses, on top of ``torch.distributed``: gloo, and NCCL on GPUs.

Horovod matches operations by name; ``torch.distributed`` matches them by their order. So that two different operations
can never mix in silence, each one carries a number made of its name, and ranks that find another number say so.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist
from attrs import frozen

from batchhvd.trainer.exchange.meeting import meet

_FOREVER = timedelta(days=30)  # a rank that waits is the node runner's concern, which names the rank it waits for
_TAGS = 32749  # the largest prime below 2^15
_EXACT = 512  # ranks over which the sum of such numbers is exact in float32
_STEADY = "batchhvd.optimizer"  # how the names of reductions begin that have the same shapes at each step
_TAGGED = (torch.float32, torch.float64, torch.int32, torch.int64)


class MixedOperationsError(RuntimeError):
    """The ranks have called different operations, or the same ones in another order."""


@frozen
class Handle:
    """A reduction that has begun.

    Attributes:
        work: what to wait for.
        flat: all tensors in one, followed by the number of the operation if there is one.
        like: the tensors that were given.
        name: the operation's.
        op: how values are combined.
    """

    work: dist.Work
    flat: torch.Tensor
    like: tuple[torch.Tensor, ...]
    name: str
    op: str


class TorchDistributed:
    """Stands for the module ``horovod.torch``; the names and arguments of its functions are Horovod's."""

    Average, Sum, Min, Max, Product = "Average", "Sum", "Min", "Max", "Product"

    def __init__(self) -> None:
        self._agreed: set[tuple[object, ...]] = set()
        # What Horovod has in a module of its own.
        self.mpi_ops = SimpleNamespace(is_homogeneous=lambda: self.size() % self.local_size() == 0)

    # -- the ranks --

    def init(self) -> None:
        """Joins the ranks."""
        if not dist.is_initialized():
            _use_interface()
            backend = "cpu:gloo,cuda:nccl" if _has_nccl() else "gloo"
            store, rank, size = meet()
            if _has_nccl():
                torch.cuda.set_device(_number("LOCAL_RANK") % torch.cuda.device_count())
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_FOREVER)

    def shutdown(self) -> None:
        """Leaves the other ranks."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def rank(self) -> int:
        """Returns the number of this rank."""
        return int(dist.get_rank())

    def size(self) -> int:
        """Returns the number of ranks."""
        return int(dist.get_world_size())

    def local_rank(self) -> int:
        """Returns the number of this rank on its node."""
        return _number("LOCAL_RANK")

    def local_size(self) -> int:
        """Returns the number of ranks on this node."""
        return _number("LOCAL_SIZE")

    def cross_rank(self) -> int:
        """Returns the number of this node."""
        return _number("CROSS_RANK")

    def cross_size(self) -> int:
        """Returns the number of nodes that have such a local rank."""
        return _number("CROSS_SIZE")

    def gloo_built(self) -> bool:
        """Returns whether gloo can be used."""
        return bool(dist.is_gloo_available())

    gloo_enabled = gloo_built

    def nccl_built(self) -> bool:
        """Returns whether NCCL is used for tensors on GPUs."""
        return _has_nccl()

    def mpi_built(self) -> bool:
        """Returns False: MPI is not used."""
        return False

    mpi_enabled = mpi_threads_supported = ccl_built = ddl_built = mpi_built

    def cuda_built(self) -> bool:
        """Returns whether there are GPUs of NVIDIA."""
        return torch.cuda.is_available() and torch.version.hip is None

    def rocm_built(self) -> bool:
        """Returns whether there are GPUs of AMD."""
        return torch.cuda.is_available() and torch.version.hip is not None

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Refuses: only Horovod has a timeline."""
        raise NotImplementedError("timelines need Horovod; without it, use torch.profiler")

    stop_timeline = start_timeline

    # -- operations --

    def grouped_allreduce_async(self, tensors: Sequence[torch.Tensor], name: str, op: str) -> Handle:
        """Begins to combine tensors of one type and device over all ranks, in one operation."""
        first = tensors[0]
        self._agree_on_lengths(tensors, name)
        parts = [tensor.reshape(-1) for tensor in tensors]
        if first.dtype in _TAGGED and op != self.Product and self.size() <= _EXACT:
            parts.append(torch.full((1,), _tag(name), dtype=first.dtype, device=first.device))
        flat = torch.cat(parts)
        wide = flat.dtype == torch.bfloat16 and flat.device.type == "cpu"
        flat = flat.float() if wide else flat
        kind = getattr(dist.ReduceOp, "SUM" if op == self.Average else op.upper())
        return Handle(dist.all_reduce(flat, op=kind, async_op=True), flat, tuple(tensors), name, op)

    def synchronize(self, handle: Handle) -> list[torch.Tensor]:
        """Waits for a reduction and returns its results; of tensors on a GPU, later work on their stream waits."""
        handle.work.wait()
        flat = handle.flat
        count = sum(tensor.numel() for tensor in handle.like)
        if flat.numel() > count:
            _check(flat[count:], handle, self.size())
        if handle.op == self.Average:
            flat = flat / self.size() if flat.is_floating_point() else flat // self.size()
        parts = flat[:count].split([tensor.numel() for tensor in handle.like])
        return [
            part.reshape(like.shape).to(like.dtype, copy=True) for part, like in zip(parts, handle.like, strict=True)
        ]

    def allgather(self, tensor: torch.Tensor, name: str) -> torch.Tensor:
        """Returns the tensors of all ranks joined along their first dimension, the only one that may differ."""
        value = tensor.reshape(1) if tensor.dim() == 0 else tensor
        rows = self._agree(name, value, value.shape[1:])
        width = math.prod(value.shape[1:])
        padded = value.new_zeros((max(rows), width))
        padded[: value.shape[0]] = value.reshape(value.shape[0], width)
        found = [torch.empty_like(_bytes(padded)) for _ in rows]
        dist.all_gather(found, _bytes(padded))
        whole = [_values(part, value.dtype, (max(rows), width)) for part in found]
        parts = [part[:count] for part, count in zip(whole, rows, strict=True)]
        return torch.cat(parts).reshape(sum(rows), *value.shape[1:])

    def broadcast(self, tensor: torch.Tensor, root_rank: int, name: str) -> torch.Tensor:
        """Returns the tensor of one rank on all ranks."""
        self._agree(name, tensor, tensor.shape)
        sent = _bytes(tensor.contiguous().reshape(1, -1)).clone()
        dist.broadcast(sent, root_rank)
        return _values(sent, tensor.dtype, tensor.shape)

    def alltoall(
        self, tensor: torch.Tensor, splits: torch.Tensor | None = None, name: str = "alltoall"
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Sends to each rank its rows of a tensor; returns the rows that came, with ``splits`` also their numbers."""
        size, rank = self.size(), self.rank()
        if splits is None and tensor.shape[0] % size:
            raise ValueError(f"the first dimension must be a multiple of {size} ranks, not {tensor.shape[0]}")
        mine = [tensor.shape[0] // size] * size if splits is None else [int(count) for count in splits]
        all_splits = self.allgather(torch.tensor([mine]), f"{name}.splits")
        came = [int(count) for count in all_splits[:, rank]]
        self._agree(name, tensor, tensor.shape[1:])
        rows = _bytes(tensor.contiguous().reshape(tensor.shape[0], math.prod(tensor.shape[1:])))
        found = rows.new_empty((sum(came), rows.shape[1]))
        dist.all_to_all_single(found, rows, came, mine)
        joined = _values(found, tensor.dtype, (sum(came), *tensor.shape[1:]))
        return joined if splits is None else (joined, torch.tensor(came, dtype=torch.int32))

    def reducescatter(self, tensor: torch.Tensor, op: str, name: str) -> torch.Tensor:
        """Returns this rank's rows of the combined tensor; the first ranks get what is left over, one row each."""
        whole = self.synchronize(self.grouped_allreduce_async([tensor], name, op))[0]
        each, more = divmod(tensor.shape[0], self.size())
        first = self.rank() * each + min(self.rank(), more)
        return whole[first : first + each + (self.rank() < more)].clone()

    def _agree_on_lengths(self, tensors: Sequence[torch.Tensor], name: str) -> None:
        """Compares the shapes of a reduction on all ranks: gloo hangs or aborts if they differ.

        Gradients have the same shapes at each step, so theirs are compared once.
        """
        shapes = (name, tuple(tuple(tensor.shape) for tensor in tensors))
        if shapes not in self._agreed:
            self._agree(f"{name} of {shapes[1]}", tensors[0], ())
        if name.startswith(_STEADY):
            self._agreed.add(shapes)

    def _agree(self, name: str, tensor: torch.Tensor, shape: Sequence[int]) -> list[int]:
        """Returns the number of rows on each rank, once all ranks have called the same operation with fitting shapes.

        Raises:
            MixedOperationsError: they have not.
        """
        rows = tensor.shape[0] if tensor.dim() else 1
        mark = zlib.crc32(f"{name} {tensor.dtype} {tuple(shape)}".encode())
        mine = torch.tensor([rows, mark])
        found = [torch.empty_like(mine) for _ in range(self.size())]
        dist.all_gather(found, mine)
        if other := [rank for rank, theirs in enumerate(found) if theirs[1] != mark]:
            what = f"{name} with {tensor.dtype} {tuple(shape)}"
            raise MixedOperationsError(
                f"this rank ({self.rank()}) calls {what}, but ranks {other} call another operation, type or shape"
            )
        return [int(theirs[0]) for theirs in found]


def _check(tag: torch.Tensor, handle: Handle, size: int) -> None:
    """Raises an error if other ranks have called another operation; on a GPU, which must not wait, never."""
    expected = _tag(handle.name) * (size if handle.op in ("Average", "Sum") else 1)
    if not tag.is_cuda and int(tag) != expected:
        raise MixedOperationsError(f"the ranks have called different operations; this one called {handle.name}")


def _tag(name: str) -> int:
    return 1 + zlib.crc32(name.encode()) % (_TAGS - 1)


def _bytes(rows: torch.Tensor) -> torch.Tensor:
    """Returns the rows of a contiguous tensor as their bytes: any type can be sent as it is."""
    if rows.numel():
        return rows.view(torch.uint8)
    return rows.new_empty((rows.shape[0], rows.shape[1] * rows.element_size()), dtype=torch.uint8)


def _values(rows: torch.Tensor, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Returns what ``_bytes`` was given, in another shape."""
    return rows.view(dtype).reshape(tuple(shape)) if rows.numel() else rows.new_empty(tuple(shape), dtype=dtype)


def _has_nccl() -> bool:
    return torch.cuda.is_available() and bool(dist.is_nccl_available())


def _number(name: str) -> int:
    return int(os.environ[f"HOROVOD_{name}"])


def _use_interface() -> None:
    if interface := os.environ.get("HOROVOD_GLOO_IFACE"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
