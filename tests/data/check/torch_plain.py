"""PyTorch on one process; everything for several ranks is missing."""  # finding: no-horovod
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def main():
    x = torch.rand(64, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)  # finding: not-sharded
    net = build()
    opt = optim.SGD(net.parameters(), lr=0.01)  # finding: rate-not-scaled
    for _ in range(2):
        for features, target in loader:
            opt.zero_grad()
            nn.functional.mse_loss(net(features), target).backward()
            opt.step()  # finding: not-wrapped, no-broadcast
    print("done")  # finding: prints-everywhere


if __name__ == "__main__":
    main()
