"""Rank 1 dies in the middle of training; the others hear who it was from DistributedDataParallel itself."""

import os
import signal

import syncline.torch  # noqa: F401
import torch
import torch.distributed as dist

dist.init_process_group("syncline")
me = dist.get_rank()
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 100))
for step in range(1000):
    if me == 1 and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        net(torch.ones(4, 1000)).sum().backward()
    except Exception as error:
        print(f"rank {me} heard: {error}", flush=True)
        raise SystemExit(3) from None
