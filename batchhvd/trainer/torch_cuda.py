"""Training on an NVIDIA GPU with PyTorch: the data stays there, and a step is recorded once and then replayed.

At several hundred thousand pictures a second Python is the bottleneck, not the GPU. So pictures are chosen, moved and
mirrored on the device, and the whole training step (forward, backward, optimizer, metrics) is compiled and captured as
one CUDA graph. With several ranks there are two graphs, and the gradients are averaged between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch

from batchhvd.trainer import hvd
from batchhvd.trainer.hvd.reduction import Distributed
from batchhvd.trainer.lowering.forward import ConstantsOnDevice, LoweredStep
from batchhvd.trainer.lowering.program import CannotLowerError, read
from batchhvd.trainer.shard import Augment, Shard

if TYPE_CHECKING:
    import keras

EAGER_STEPS = 1  # creates what is created on first use, so that the next step compiles the final code
WARM_STEPS = 4  # ordinary steps before the recording, including the eager one, which allocate all memory
WARM_WHOLE = 2  # the same for a network that is compiled as one function
MOST_VARIANTS = 64  # of one function that PyTorch may compile: each model trained in a process adds one
MOST_OF_MEMORY = 0.5


def resident(arrays: Sequence[np.ndarray | torch.Tensor]) -> tuple[np.ndarray | torch.Tensor, ...]:
    """Moves arrays to the GPU if they take less than half of its free memory, otherwise returns them unchanged."""
    arrays = tuple(arrays)
    free, _ = torch.cuda.mem_get_info()
    if sum(array.nbytes for array in arrays) > MOST_OF_MEMORY * free:
        return arrays
    return tuple(torch.as_tensor(array).cuda() for array in arrays)


# --- batches -------------------------------------------------------------------------------------------------------


def batch(
    arrays: Sequence[torch.Tensor], shard: Shard, augment: Augment | None, step: int, pictures: bool = False
) -> tuple[torch.Tensor, ...]:
    """Returns this rank's batch of step ``step`` from arrays on the device.

    Args:
        arrays: x (n, height, width, channels), and others with one row per picture.
        shard: the samples of this rank.
        augment: None leaves the pictures as they are.
        step: counted from the start of training.
        pictures: divides ``x`` by 255.
    """
    x, *others = arrays
    numbers = _sent(shard.at(step)[0], x)  # (batch,)
    chosen = x[numbers] if augment is None else _augmented(x, numbers, shard, augment, step)
    scaled = chosen * (1 / 255) if pictures else chosen
    return (scaled, *(array[numbers] for array in others))


def _augmented(x: torch.Tensor, numbers: torch.Tensor, shard: Shard, augment: Augment, step: int) -> torch.Tensor:
    _, height, width, _ = x.shape
    moves, mirrored = _sent(augment.moves(shard, step), x), _sent(augment.mirrored(shard, step), x)
    rows, columns = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    down, right = moves[:, :, None]  # (batch, 1) each
    source_rows = (rows + down).clamp(0, height - 1)  # (batch, height)
    source_columns = (columns + right).clamp(0, width - 1)  # (batch, width)
    source_columns = torch.where(mirrored[:, None], source_columns.flip(1), source_columns)
    chosen = x[numbers[:, None, None], source_rows[:, :, None], source_columns[:, None, :]]
    if augment.hole:
        top, left = _sent(augment.holes(shard, step, height, width), x)[:, :, None]  # (batch, 1) each
        across = (rows >= top) & (rows < top + augment.hole)  # (batch, height)
        along = (columns >= left) & (columns < left + augment.hole)  # (batch, width)
        chosen.masked_fill_((across[:, :, None] & along[:, None, :])[..., None], augment.paint)
    return chosen  # (batch, height, width, channels)


def _sent(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    # A copy from pinned memory does not make the host wait for earlier steps.
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else tensor


# --- the recorded step ---------------------------------------------------------------------------------------------


class RecordedStep:
    """The training step that Keras's ``fit`` calls for each batch: compiled, then captured, then replayed.

    All batches must have the shapes of the first. The step computes the model's own ``train_step``.

    Args:
        model: compiled, on the PyTorch backend; its optimizer is distributed, and its update does not read
            values back to the host.
        alone: whether nothing happens between gradients and update; None means: with one rank.
    """

    def __init__(self, model: keras.Model, alone: bool | None = None) -> None:
        self.model = model
        self.optimizer = model.optimizer
        self.alone = hvd.size() == 1 if alone is None else alone
        self.calls = 0
        self.inputs: list[torch.Tensor] = []
        self.parts: list[Callable[[], None]] = []
        self.logs: dict[str, torch.Tensor] = {}
        self._keeper = _GradientKeeper(model.optimizer)
        self._constants = ConstantsOnDevice()
        self._step, self._apply = model.train_step, self._applied
        self.whole_reason = self._lower()

    def _lower(self) -> str:
        """Takes the network as one function if all of its layers are known; returns what is not."""
        try:
            program = read(self.model)
        except CannotLowerError as error:
            return str(error)
        self._step = LoweredStep(self.model, program, compile_it=torch.cuda.is_available())
        return ""

    def __call__(self, data: Sequence[Sequence[torch.Tensor | None]]) -> dict[str, torch.Tensor]:
        """Trains on one batch and returns the metrics so far, as tensors on the device."""
        batch = [part for part in data[0] if part is not None]
        self.calls += 1
        if self.calls == EAGER_STEPS + 1:
            self._compile()
        if self.calls <= self.warm_steps or not batch[0].is_cuda:
            return self._warm(batch)
        if not self.parts:
            self._record(batch)
        for kept, new in zip(self.inputs, batch, strict=True):
            kept.copy_(new)
        for part in self.parts:
            part()
        return self.logs

    @property
    def warm_steps(self) -> int:
        """How many steps precede the recording."""
        return WARM_STEPS if self.whole_reason else WARM_WHOLE

    def _compile(self) -> None:
        if not self.whole_reason:
            return
        for layer in self.model._flatten_layers():
            if hasattr(layer, "_reduction_axes"):  # batch normalization: the compiler fails on Keras's list
                layer._reduction_axes = tuple(layer._reduction_axes)
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MOST_VARIANTS)
        self._step = torch.compile(self._step, dynamic=False)
        self._apply = torch.compile(self._apply, dynamic=False)

    def _warm(self, batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        if not batch[0].is_cuda:
            return self._whole(batch)
        side = torch.cuda.Stream()  # capture requires that memory was not allocated on the default stream
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), _fastest_kernels():
            logs = self._whole(batch)
        torch.cuda.current_stream().wait_stream(side)
        return logs

    def _whole(self, batch: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        if self.alone:
            return dict(self._step(tuple(batch)))
        self._forward_backward(batch)
        self._average()
        self._apply()
        return self.logs

    def _record(self, batch: list[torch.Tensor]) -> None:
        self.inputs = [part.clone() for part in batch]
        if self.alone:
            self.parts = [self._captured(self._keep_logs)]
        else:
            first = self._captured(lambda: self._forward_backward(self.inputs))
            self.parts = [first, self._average, self._captured(self._apply)]

    def _captured(self, work: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with _fastest_kernels(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            work()
        replay: Callable[[], None] = graph.replay
        return replay

    def _keep_logs(self) -> None:
        self.logs = dict(self._step(tuple(self.inputs)))

    def _forward_backward(self, batch: list[torch.Tensor]) -> None:
        """Runs the model's step up to the gradients, and keeps these instead of applying them."""
        self.model.optimizer = self._keeper
        try:
            self.logs = dict(self._step(tuple(batch)))
        finally:
            self.model.optimizer = self.optimizer

    def _average(self) -> None:
        gradients = self._keeper.gradients
        averaged = self.optimizer.reduction.reduce(gradients, self.optimizer.reduction_name)
        for kept, new in zip(gradients, averaged, strict=True):
            if kept is not new:  # the recorded update reads the gradients from where they were during the recording
                kept.copy_(new)

    def _applied(self) -> None:
        with torch.no_grad():
            past_the_reduction: keras.optimizers.Optimizer = super(Distributed, self.optimizer)
            with nullcontext() if self.whole_reason else self._constants:
                past_the_reduction.apply(self._keeper.gradients, self._keeper.variables)


@contextmanager
def _fastest_kernels() -> Iterator[None]:
    """Lets cuDNN try its kernels for each new shape and keep the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


class _GradientKeeper:
    """Replaces the optimizer while the gradients are computed."""

    def __init__(self, optimizer: keras.optimizers.Optimizer) -> None:
        self.optimizer = optimizer
        self.gradients: list[torch.Tensor] = []
        self.variables: list[keras.Variable] = []

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """Scales the loss as the real optimizer does."""
        return self.optimizer.scale_loss(loss)

    def apply(self, gradients: Sequence[torch.Tensor], variables: Sequence[keras.Variable]) -> None:
        """Keeps the gradients."""
        self.gradients, self.variables = list(gradients), list(variables)
