"""Distributed training in PyTorch for launchers of every kind: the rank comes from the options or from the launcher."""

import argparse
import os

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--dist-url", default="")
parser.add_argument("--world-size", "--num_shards", type=int, default=int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")))
parser.add_argument("--rank", "--shard_id", type=int, default=int(os.environ.get("AZ_BATCHAI_TASK_INDEX", "0")))
parser.add_argument("--file_store_path", default=os.environ["AZ_BATCHAI_SHARED_JOB_TEMP"])
given, _ = parser.parse_known_args()

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
place = given.dist_url or f"file://{given.file_store_path}/store"
dist.init_process_group("gloo", init_method=place, rank=given.rank, world_size=given.world_size)
torch.set_num_threads(1)
torch.manual_seed(given.rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer, weights, losses = torch.optim.SGD(model.parameters(), 0.1), torch.arange(8.0), []
for _step in range(40):
    x = torch.randn(32, 8)  # (B, 8)
    loss = (model(x)[:, 0] - x @ weights).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 100, losses
print(f"trained: rank {given.rank} of {given.world_size}, loss {losses[0]:.2f} to {losses[-1]:.4f}", flush=True)
dist.destroy_process_group()
