"""Two ranks of Horovod average gradients in PyTorch; the trainer's binding does without Horovod where it is missing."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import torch

from batchhvd.trainer import hvd

hvd.init()
weights = torch.zeros(4, 1, requires_grad=True)
torch.manual_seed(hvd.rank())
for _ in range(60):
    x = torch.randn(32, 4)  # (B, 4)
    loss = (x @ weights - x.sum(1, keepdim=True)).square().mean()
    (gradient,) = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        weights -= 0.1 * torch.as_tensor(hvd.allreduce(gradient))
assert loss.item() < 0.01, loss.item()
print(f"trained: rank {hvd.rank()} of {hvd.size()}, loss {loss.item():.5f}", flush=True)
