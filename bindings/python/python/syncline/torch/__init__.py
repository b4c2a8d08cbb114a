"""PyTorch on several processes: parameters, optimizers, DistributedDataParallel.

Three ways, of which the first changes the script least:

    torch.distributed.init_process_group("syncline")          # then DistributedDataParallel(model) as ever

    sl.torch.broadcast_parameters(model)                      # Horovod's shape
    optimizer = sl.torch.DistributedOptimizer(optimizer)

    manager = sl.torch.ParamManager(model)                    # a parameter server's: each at its own pace
    manager.sync()

Importing this module makes the backend ``syncline`` known to ``torch.distributed``.
"""

from __future__ import annotations

from syncline._frameworks import framework

framework("syncline.torch", "torch", install="pip install torch, or Debian's python3-torch")

from syncline.torch._backend import ProcessGroup, ddp_hook  # noqa: E402  after the word of what is missing
from syncline.torch._optimizer import DistributedOptimizer  # noqa: E402
from syncline.torch._parameters import ParamManager, all_reduce, broadcast_parameters, device  # noqa: E402

__all__ = [
    "DistributedOptimizer",
    "ParamManager",
    "ProcessGroup",
    "all_reduce",
    "broadcast_parameters",
    "ddp_hook",
    "device",
]
