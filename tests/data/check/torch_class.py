"""A trainer class for PyTorch with its rank in an attribute, state dictionaries of rank 0, and a lock. Right."""
import os

import horovod.torch as hvd
import torch


class Trainer:
    def __init__(self, folder):
        self.rank = hvd.rank()
        self.chief = self.rank == 0
        self.folder = folder
        self.device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")
        self.model = torch.nn.Linear(4, 1).to(self.device)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1 * hvd.size(), weight_decay=1e-4)
        self.opt = hvd.DistributedOptimizer(self.opt, named_parameters=self.model.named_parameters())
        hvd.broadcast_parameters(self.model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self.opt, root_rank=0)

    def say(self, *words):
        if self.chief:
            print(*words)

    def step(self, x):
        self.opt.zero_grad()
        loss = (self.model(x.to(self.device)) ** 2).mean()
        loss.backward()
        self.opt.step()
        return loss.item()

    def save(self):
        torch.save(self.model.state_dict(), os.path.join(self.folder, "model.pt"))

    def run(self):
        for number in range(4):
            self.say("step", number, self.step(torch.rand(8, 4)))
        if self.chief:
            self.save()


if __name__ == "__main__":
    hvd.init()
    Trainer(".").run()
