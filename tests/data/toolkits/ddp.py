"""Two steps of DistributedDataParallel: every rank ends with the same weights, however it was told where to meet."""

import contextlib
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

told = {"init_method": os.environ["AZ_BATCHAI_PYTORCH_INIT_METHOD"]} if "batchai" in sys.argv else {}
if told:
    told |= {"rank": int(os.environ["AZ_BATCHAI_TASK_INDEX"]), "world_size": int(os.environ["WORLD_SIZE"])}
dist.init_process_group(os.environ.get("AZ_BATCHAI_PYTORCH_BACKEND", "gloo"), **told)
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
other = torch.tensor([os.getpid()])
dist.broadcast(other, 0)
for step in range(2):
    if "die" in sys.argv and step == 1 and dist.get_rank() == 1:
        for name in os.listdir("/proc/self/fd"):  # the other rank loses this one, and ends before it
            with contextlib.suppress(OSError):
                end = socket.socket(fileno=int(name))
                if not end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):  # gloo aborts when it cannot accept
                    end.shutdown(socket.SHUT_RDWR)
        while os.path.exists(f"/proc/{other.item()}"):
            time.sleep(0.02)
        time.sleep(0.3)
        os._exit(9)
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
total = sum(parameter.sum().item() for parameter in model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()} sum {total:.6f}", flush=True)
dist.destroy_process_group()
