"""Muon's update in PyTorch: kernels of one shape at once, in few launches, so that a GPU does not wait for the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import torch

from batchhvd.trainer.optimizers.newton_schulz import CUBIC, ITERATIONS, LINEAR, QUINTIC, TINY

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import keras

    from batchhvd.trainer.optimizers.muon import Muon

    Pair = tuple[torch.Tensor, keras.Variable]
_T = TypeVar("_T")


def update(
    optimizer: Muon,
    gradients: Sequence[torch.Tensor],
    variables: Sequence[keras.Variable],
    rate: torch.Tensor,
) -> None:
    """Updates all weights."""
    pairs = list(zip(gradients, variables, strict=True))
    kernels = [pair for pair in pairs if optimizer.is_kernel(pair[1])]
    others = [pair for pair in pairs if not optimizer.is_kernel(pair[1])]
    with torch.no_grad():
        for group in grouped(kernels, lambda pair: tuple(pair[1].shape)):
            _turn(optimizer, group, rate)
        for group in grouped(others, lambda pair: optimizer.factor(pair[1])):
            _push(optimizer, group, rate)


def grouped(items: Sequence[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Returns items with equal keys together, in the order of their first."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _moves(optimizer: Muon, group: Sequence[Pair], momentum: float) -> list[torch.Tensor]:
    """Updates the velocities of weights, and returns how they move."""
    gradients = [gradient.to(torch.float32) for gradient, _ in group]
    velocities = [optimizer.velocity(variable).value for _, variable in group]
    torch._foreach_mul_(velocities, momentum)
    torch._foreach_add_(velocities, gradients)
    moves = list(torch._foreach_mul(velocities, momentum))
    torch._foreach_add_(moves, gradients)
    return moves


def _push(optimizer: Muon, group: Sequence[Pair], rate: torch.Tensor) -> None:
    """Moves weights by momentum alone."""
    moves, values = _moves(optimizer, group, optimizer.plain_momentum), [variable.value for _, variable in group]
    factor, brief = optimizer.factor(group[0][1])
    torch._foreach_mul_(moves, torch.as_tensor(rate * factor * (optimizer.fading() if brief else 1.0)))
    if optimizer.decay:
        torch._foreach_mul_(values, 1.0 - rate * optimizer.decay)
    torch._foreach_sub_(values, moves)


def _turn(optimizer: Muon, group: Sequence[Pair], rate: torch.Tensor) -> None:
    """Moves kernels of one shape by orthogonal matrices."""
    moves, values = _moves(optimizer, group, optimizer.momentum), [variable.value for _, variable in group]
    shape = values[0].shape
    turned = orthogonal(torch.stack([move.reshape(-1, shape[-1]) for move in moves])).to(torch.float32) * rate
    if len(shape) > 2:
        norms = torch.stack(torch._foreach_norm(values)) + TINY
        for value, factor in zip(values, (shape[-1] ** 0.5 / norms).unbind(), strict=True):
            value.mul_(factor)
    torch._foreach_sub_(values, [matrix.view(shape) for matrix in turned.unbind()])


def orthogonal(rows: torch.Tensor) -> torch.Tensor:
    """Returns matrices (n, rows, columns) with singular values of about 1, in bfloat16 on a GPU."""
    wide = rows.shape[1] < rows.shape[2]
    x = rows.mT if wide else rows
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + TINY)
    x = x.to(torch.bfloat16) if x.is_cuda else x
    for _ in range(ITERATIONS):
        square = x.mT @ x
        x = torch.baddbmm(x, x, torch.baddbmm(square, square, square, beta=CUBIC, alpha=QUINTIC), beta=LINEAR)
    return x.mT if wide else x
