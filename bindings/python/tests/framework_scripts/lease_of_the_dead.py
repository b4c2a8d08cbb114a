"""One worker takes a lease and dies with it; the others see its samples all the same."""

import os
import signal
import time

import syncline as sl

sl.init()
shard = sl.data.shard(60, leases=True, lease=5)
pids = sl.tree().all_gather(os.getpid())
if sl.worker_id() == 1:
    next(iter(shard))
    sl.barrier()
    os.kill(os.getpid(), signal.SIGKILL)
sl.barrier()


def lives(pid):
    """Its locks end with its last thread."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


while lives(pids[1]):
    time.sleep(0.001)
print("saw", *shard, flush=True)
