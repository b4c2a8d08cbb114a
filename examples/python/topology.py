"""Processes meet, pass a barrier and show who sits where: syncline run -n 4 python topology.py"""

import time

import syncline as sl

ROUNDS = 1000

with sl.init():
    sl.barrier()
    started = time.perf_counter()
    for _ in range(ROUNDS):
        sl.barrier()
    microseconds = (time.perf_counter() - started) / ROUNDS * 1e6

    if sl.rank() == 0:
        print(sl.topology())
        print(f"a barrier of {sl.size()} takes {microseconds:.1f} µs")
