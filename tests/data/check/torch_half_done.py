"""PyTorch with Horovod started and not finished: nothing is broadcast, nothing sharded, all ranks write and print."""
import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset

hvd.init()  # finding: gpu-not-pinned
device = "cuda" if torch.cuda.is_available() else "cpu"
dataset = TensorDataset(torch.arange(256.0).reshape(64, 4), torch.zeros(64, 1))
loader = DataLoader(dataset, batch_size=16, shuffle=True)  # finding: not-sharded
model = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)  # finding: rate-not-scaled
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()  # finding: not-wrapped, no-broadcast
    print("epoch", epoch, "loss", loss.item())  # finding: prints-everywhere
torch.save(model.state_dict(), "model.pt")  # finding: shared-path
