"""Elastic training with PyTorch: it runs in a job, but its ranks stay the same."""
import horovod.torch as hvd
import torch

hvd.init()
torch.manual_seed(42)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


@hvd.elastic.run  # finding: elastic
def train(state):
    for state.epoch in range(state.epoch, 2):
        for _ in range(4):
            optimizer.zero_grad()
            loss = (model(torch.rand(16, 4)) ** 2).mean()
            loss.backward()
            optimizer.step()
        state.commit()


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0, epoch=0)  # finding: elastic
train(state)
if hvd.rank() == 0:
    print("done")
