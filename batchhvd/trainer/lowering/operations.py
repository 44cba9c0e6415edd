"""What the operations of a program compute, in PyTorch. Pictures stay (batch, height, width, channels), as in Keras."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from typing import TypeAlias

    from batchhvd.trainer.lowering.program import Operation

    #: The result, and the mean and the variance of each batch normalization.
    Forward: TypeAlias = tuple[torch.Tensor, list[torch.Tensor]]

MOST_PROGRAMS = 64  # that one process may compile


@functools.cache
def compiled(operations: tuple[Operation, ...], output: int) -> Callable[..., Forward]:
    """Returns the forward pass of a program as one compiled function of the input and the weights."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, MOST_PROGRAMS)
    made: Callable[..., Forward] = torch.compile(
        plain(operations, output), dynamic=False, fullgraph=True, options=_options()
    )
    return made


def _options() -> dict[str, bool] | None:
    """Keeps the compiler from building several variants of each kernel to time them: a third of the first step.

    One H200 trained no slower with the variants that it takes then.
    """
    import torch._inductor.config as known

    return {"deterministic": True} if hasattr(known, "deterministic") else None


def plain(operations: tuple[Operation, ...], output: int) -> Callable[..., Forward]:
    """Returns the forward pass of a program, not compiled."""

    def forward(x: torch.Tensor, weights: Sequence[torch.Tensor]) -> Forward:
        values, moments = {0: x}, []
        for kind, place, came, own, options in operations:
            inputs, tensors = [values[one] for one in came], [weights[one] for one in own]
            if kind == "normalize":
                values[place], mean, variance = NORMALIZE(inputs[0], tensors, *options)
                moments += [mean, variance]
            else:
                values[place] = KINDS[kind](inputs, tensors, *options)
        return values[output], moments

    return forward


def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


ACTIVATE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "linear": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softmax": lambda x: functional.softmax(x, dim=-1),
}


def _convolve(
    inputs: list[torch.Tensor],
    weights: list[torch.Tensor],
    strides: tuple[int, int],
    padding: tuple[int, int],
    activation: str,
    dtype: str,
) -> torch.Tensor:
    x = inputs[0].to(_dtype(dtype)).permute(0, 3, 1, 2)
    kernel, *bias = (weight.to(_dtype(dtype)) for weight in weights)
    out = functional.conv2d(x, kernel.permute(3, 2, 0, 1), bias[0] if bias else None, strides, padding)
    return ACTIVATE[activation](out.permute(0, 2, 3, 1))


def _multiply(inputs: list[torch.Tensor], weights: list[torch.Tensor], activation: str, dtype: str) -> torch.Tensor:
    kernel, *bias = (weight.to(_dtype(dtype)) for weight in weights)
    out = inputs[0].to(_dtype(dtype)) @ kernel
    return ACTIVATE[activation](out + bias[0] if bias else out)


def _normalize(
    x: torch.Tensor, weights: list[torch.Tensor], scaled: bool, centered: bool, epsilon: float, dtype: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns the normalized batch with its mean and variance, both (channels,), in float32 as Keras does."""
    channels_first = (x if x.is_cuda else x.to(torch.float32)).movedim(-1, 1)  # a GPU's sums are float32 by themselves
    gamma = weights[0] if scaled else torch.ones(x.shape[-1], device=x.device)
    beta = weights[-1] if centered else None
    out, mean, inverse = torch.native_batch_norm(channels_first, gamma, beta, None, None, True, 0.0, epsilon)
    variance = inverse.detach() ** -2 - epsilon
    return out.movedim(1, -1).to(_dtype(dtype)), mean.detach(), variance


def _pool(
    inputs: list[torch.Tensor], weights: list[torch.Tensor], size: tuple[int, int], strides: tuple[int, int], dtype: str
) -> torch.Tensor:
    x = inputs[0].to(_dtype(dtype)).permute(0, 3, 1, 2)
    return functional.max_pool2d(x, size, strides).permute(0, 2, 3, 1)


def _rescale(
    inputs: list[torch.Tensor], weights: list[torch.Tensor], scale: float, offset: float, dtype: str
) -> torch.Tensor:
    return inputs[0].to(_dtype(dtype)) * scale + offset


def _drop(inputs: list[torch.Tensor], weights: list[torch.Tensor], rate: float, dtype: str) -> torch.Tensor:
    return functional.dropout(inputs[0].to(_dtype(dtype)), rate)


NORMALIZE: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = _normalize
KINDS: dict[str, Callable[..., torch.Tensor]] = {
    "convolve": _convolve,
    "multiply": _multiply,
    "pool": _pool,
    "rescale": _rescale,
    "drop": _drop,
    "activate": lambda inputs, weights, activation, dtype: ACTIVATE[activation](inputs[0].to(_dtype(dtype))),
    "flatten": lambda inputs, weights, dtype: inputs[0].to(_dtype(dtype)).flatten(1),
    "add": lambda inputs, weights, dtype: functools.reduce(torch.add, [one.to(_dtype(dtype)) for one in inputs]),
}
