"""DistributedDataParallel on handwritten digits, unchanged: only the name of the backend is new.

Four processes:      syncline run -n 4 python torch_ddp.py
Under torchrun:      torchrun --nproc_per_node 4 torch_ddp.py
Under an MPI:        mpirun -np 4 python torch_ddp.py
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are the parallelism

import digits_data
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import syncline.torch  # noqa: F401  makes the backend known

EPOCHS, BATCH = 20, 32


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 16, 10),
    )


def train(net: nn.Module, images: torch.Tensor, labels: torch.Tensor, rank: int, world: int) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
        share = order[rank : len(order) // world * world : world]
        for batch in share.split(max(1, BATCH // world)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimizer.step()


def accuracy(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return float((net(images).argmax(1) == labels).float().mean())


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("syncline")
    rank, world = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = map(torch.from_numpy, digits_data.load())
    net = convolutional()
    train(DistributedDataParallel(net), images, labels, rank, world)
    if rank == 0:
        print(f"{world} processes: test accuracy {accuracy(net, test_images, test_labels):.4f}")
    dist.destroy_process_group()
    if rank == 0:
        alone = convolutional()
        train(alone, images, labels, 0, 1)
        print(f"one process alone: test accuracy {accuracy(alone, test_images, test_labels):.4f}")


if __name__ == "__main__":
    main()
