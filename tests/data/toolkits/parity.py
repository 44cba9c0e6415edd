"""A small DDP training, right or wrong in a way that people get it wrong."""

import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # the ranks begin with other weights: DDP makes them equal
data = TensorDataset(x := torch.randn(203, 6, generator=torch.Generator().manual_seed(1)), x[:, :1] * x[:, 1:2])
layers = [torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers))
net = model.module if "module" in sys.argv else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for _ in range(1 if "short" in sys.argv else 3):
    for inputs, wanted in DataLoader(data, 8, sampler=DistributedSampler(data)):
        optimizer.zero_grad()
        loss = (net(inputs) - wanted).square()
        (loss.sum() if "sum" in sys.argv else loss.mean()).backward()
        optimizer.step()
print("the script's own end", os.getpid())
dist.destroy_process_group()
