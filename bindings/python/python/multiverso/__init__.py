"""Multiverso's Python package on top of Syncline: old scripts run with their import line unchanged.

    import multiverso as mv

    mv.init()
    table = mv.ArrayTableHandler(10)
    table.add([1.0] * 10)
    mv.barrier()
    print(mv.worker_id(), table.get())
    mv.shutdown()

What differs from the original is what was broken there: any size works, ids are checked, barriers flush, errors are
exceptions. New programs use ``syncline``, which can do more.
"""

import sys

from multiverso import conversion as utils
from multiverso.api import (
    barrier,
    init,
    is_master_worker,
    num_workers,
    server_id,
    shutdown,
    worker_id,
    workers_num,
)
from multiverso.tables import ArrayTableHandler, MatrixTableHandler, SizeMismatch, TableHandler

sys.modules["multiverso.utils"] = utils  # where old scripts look for it

__all__ = [
    "ArrayTableHandler",
    "MatrixTableHandler",
    "SizeMismatch",
    "TableHandler",
    "barrier",
    "init",
    "is_master_worker",
    "num_workers",
    "server_id",
    "shutdown",
    "worker_id",
    "workers_num",
]
