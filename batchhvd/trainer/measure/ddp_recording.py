"""One rank of the parity certificate for a script with DistributedDataParallel: runs it, and records its first steps.

    python -m batchhvd.trainer.measure.ddp_recording OPTIONS-AS-JSON SCRIPT ARGUMENT...

The script runs unchanged, as ``__main__``. What it makes of PyTorch tells what is needed: the first
DistributedDataParallel is the model, the loaders with a DistributedSampler have the batches, and a step of an optimizer
that has the model's parameters is a step. After the last step that is compared, the script ends.
"""

from __future__ import annotations

import inspect
import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import torch
from attrs import asdict, define
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from batchhvd.node.launch.pytorch import place_variables

_BY_PARTS = (torch.nn.modules.batchnorm._BatchNorm,)  # these normalize with the part of the batch that a rank has


class Options(TypedDict):
    """What a rank is told.

    Keys:
        folder: where the records go.
        factor: how many times larger batches are than the script says; 1 for the ranks together.
        steps: how many steps are compared at most.
        start: the file with the weights to begin with, or None to begin with the script's.
    """

    folder: str
    factor: int
    steps: int
    start: str | None


@define
class Recorded:
    """What one rank saw.

    Attributes:
        size: ranks of the process group, 0 if there was none.
        wrapped: how many models were given to DistributedDataParallel.
        loaders: how many loaders divide their data with a DistributedSampler.
        full_batches: how many full batches the first of them has in an epoch; None without one.
        by_parts: the layers that normalize with a rank's part of a batch.
        dropout: how many layers of dropout were switched off.
        done: the steps that were made.
        gradient: the norm of the gradients of the first step.
    """

    size: int = 0
    wrapped: int = 0
    loaders: int = 0
    full_batches: int | None = None
    by_parts: list[str] = []
    dropout: int = 0
    done: int = 0
    gradient: float | None = None


class EnoughError(SystemExit):
    """The steps that are compared are done."""


class Recorder:
    """Watches what a script makes of PyTorch.

    Args:
        options: what this rank is told.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.found = Recorded()
        self._parameters: list[torch.nn.Parameter] = []
        self._batches = 0
        self._tensors: dict[str, list[torch.Tensor]] = {}

    def watch(self) -> None:
        """Puts itself where models, loaders and optimizers are made and used."""
        _after(DistributedDataParallel, self._wrapped)
        _instead(DataLoader, self._loading)
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)

    def save(self, rank: int) -> None:
        """Writes what was found; the first rank adds gradients and weights."""
        folder = Path(self.options["folder"])
        if rank == 0:
            torch.save(self._tensors, folder / "tensors.pt")
        (folder / f"rank-{rank}.json").write_text(json.dumps(asdict(self.found)))

    def _wrapped(self, model: DistributedDataParallel) -> None:
        self.found.wrapped += 1
        if self.found.wrapped > 1:
            return
        self.found.size = torch.distributed.get_world_size()
        for name, layer in model.module.named_modules():
            if isinstance(layer, torch.nn.modules.dropout._DropoutNd):
                layer.p, self.found.dropout = 0.0, self.found.dropout + 1
            elif isinstance(layer, _BY_PARTS) and not isinstance(layer, torch.nn.SyncBatchNorm):
                self.found.by_parts.append(name or type(layer).__name__)
        if (start := self.options["start"]) is not None:
            model.module.load_state_dict(torch.load(start, weights_only=True))
        elif torch.distributed.get_rank() == 0:
            torch.save(model.module.state_dict(), Path(self.options["folder"], "start.pt"))
        self._parameters = [parameter for parameter in model.module.parameters() if parameter.requires_grad]
        self._tensors["start"] = _copies(self._parameters)
        model.register_forward_pre_hook(self._forward)

    def _loading(self, create: Callable[..., None], *args: object, **named: object) -> None:
        """Makes a loader, whose batches are as large as those of all ranks together if this is one for them all."""
        given = inspect.signature(create).bind(*args, **named)
        given.apply_defaults()
        sampler, batch = given.arguments["sampler"], given.arguments["batch_size"]
        if isinstance(sampler, DistributedSampler) and batch is not None:
            self.found.loaders += 1
            given.arguments["batch_size"] = batch * self.options["factor"]
            if self.found.full_batches is None:
                self.found.full_batches = len(sampler) // given.arguments["batch_size"]
        create(*given.args, **given.kwargs)

    def _forward(self, model: torch.nn.Module, inputs: object) -> None:
        if model.training and torch.is_grad_enabled():
            self._batches += 1

    def _is_mine(self, optimizer: torch.optim.Optimizer) -> bool:
        mine = {id(parameter) for parameter in self._parameters}
        return any(id(parameter) in mine for group in optimizer.param_groups for parameter in group["params"])

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not self._is_mine(optimizer):
            return
        if self.found.full_batches is not None and self._batches > self.found.full_batches:
            raise EnoughError(
                0
            )  # the last batch of an epoch is not the same part of the data on another number of ranks
        if self.found.done == 0:
            gradients = [torch.zeros_like(part) if part.grad is None else part.grad for part in self._parameters]
            self._tensors["gradients"] = _copies(gradients)
            self.found.gradient = float(torch.cat([part.ravel() for part in self._tensors["gradients"]]).norm())

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not self._is_mine(optimizer):
            return
        self.found.done += 1
        self._tensors["weights"] = _copies(self._parameters)
        if self.found.done >= self.options["steps"]:
            raise EnoughError(0)


def _copies(tensors: list[torch.nn.Parameter] | list[torch.Tensor]) -> list[torch.Tensor]:
    return [tensor.detach().double().cpu().clone() for tensor in tensors]


def _after(kind: type[DistributedDataParallel], then: Callable[[DistributedDataParallel], None]) -> None:
    create: Callable[..., None] = kind.__init__

    def init(model: DistributedDataParallel, *args: object, **named: object) -> None:
        create(model, *args, **named)
        then(model)

    kind.__init__ = init


def _instead(kind: type[DataLoader[object]], make: Callable[..., None]) -> None:
    create = kind.__init__

    def init(*args: object, **named: object) -> None:
        make(create, *args, **named)

    kind.__init__ = init


def _exactly() -> None:
    """Makes GPUs compute the gradients of a batch as the sum of those of its parts, except for rounding of float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.enabled = False


def main() -> int:
    """Runs the script until enough steps are made, and records them; returns the exit code."""
    options, script = json.loads(sys.argv[1]), sys.argv[2]
    rank, size = int(os.environ.get("HOROVOD_RANK", "0")), int(os.environ.get("HOROVOD_SIZE", "1"))
    os.environ.update(place_variables(0, rank, [size]))
    _exactly()
    recorder = Recorder(options)
    recorder.watch()
    sys.argv = sys.argv[2:]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    recorder.save(rank)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
