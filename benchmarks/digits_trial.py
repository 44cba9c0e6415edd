"""One training of a sweep: a small network for scikit-learn's digits, on all ranks of Horovod, with PyTorch.

    digits_trial.py RATE WIDTH DROPOUT EPOCHS

Reports ``val_accuracy`` after each epoch, measured on the digits of people whom training never saw.
"""

from __future__ import annotations

import sys

import horovod.torch as hvd
import torch
from torch import nn

from batchhvd.trainer.data import DIGITS_TESTED, _digits_table
from batchhvd.trainer.reporting import report

BATCH = 16


def network(width: int, dropout: float) -> nn.Module:
    """Returns the network: 8×8 pixels in, ten logits out."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(18 * width, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def main() -> None:
    """Trains and reports."""
    rate, width, dropout, epochs = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    table = torch.tensor(_digits_table(), dtype=torch.float32)
    images, labels = table[:, :64].reshape(-1, 1, 8, 8) / 16, table[:, 64].long()
    cut = len(images) - DIGITS_TESTED
    model = network(width, dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for epoch in range(1, epochs + 1):
        loss = train(model, optimizer, images[:cut], labels[:cut], epoch)
        report(epoch=epoch, loss=loss, val_accuracy=accuracy(model, images[cut:], labels[cut:]))


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor, epoch: int
) -> float:
    """Trains for one pass over this rank's part and returns the mean loss of all ranks."""
    model.train()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    steps = len(images) // (BATCH * hvd.size())
    losses = []
    for step in range(steps):
        begin = (step * hvd.size() + hvd.rank()) * BATCH
        rows = order[begin : begin + BATCH]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return float(hvd.allreduce(torch.stack(losses).mean()))


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Returns the part of the pictures that are recognised."""
    model.eval()
    return float((model(images).argmax(1) == labels).float().mean())


if __name__ == "__main__":
    main()
