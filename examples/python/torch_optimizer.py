"""Handwritten digits in Horovod's manner: parameters broadcast once, an optimizer whose steps are everybody's.

Four processes:      syncline run -n 4 python torch_optimizer.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are the parallelism

import digits_data
import torch
from torch import nn

import syncline as sl

EPOCHS, BATCH = 20, 32


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def accuracy(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return float((net(images).argmax(1) == labels).float().mean())


def main() -> None:
    torch.set_num_threads(1)
    images, labels, test_images, test_labels = map(torch.from_numpy, digits_data.load())
    with sl.init():
        workers = sl.num_workers()
        net = network()
        sl.torch.broadcast_parameters(net)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        sl.torch.DistributedOptimizer(optimizer, net.named_parameters())
        shard = sl.data.shard(len(images), batch=max(1, BATCH // workers), shuffle=True)
        for _ in sl.progress.bar(range(EPOCHS), unit="epochs"):
            for batch in shard:
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
                optimizer.step()
        if sl.is_master_worker():
            print(f"{workers} processes: test accuracy {accuracy(net, test_images, test_labels):.4f}")
        master = sl.is_master_worker()
    if master:
        torch.manual_seed(0)
        alone = network()
        plain = torch.optim.Adam(alone.parameters(), lr=0.01)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(images)).split(BATCH):
                plain.zero_grad()
                nn.functional.cross_entropy(alone(images[batch]), labels[batch]).backward()
                plain.step()
        print(f"one process alone: test accuracy {accuracy(alone, test_images, test_labels):.4f}")


if __name__ == "__main__":
    main()
