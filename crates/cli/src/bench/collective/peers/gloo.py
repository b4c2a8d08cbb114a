"""torch.distributed with Gloo, for `syncline bench allreduce --peers`: STORE RANK WORLD OP DTYPE REDOP SECS RUNS SIZE…"""

import json
import sys
import time

import torch
import torch.distributed as dist

store, rank, world, operation, dtype, redop, secs, runs, *sizes = sys.argv[1:]
rank, world, secs, runs = int(rank), int(world), float(secs), int(runs)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
kind = getattr(torch, dtype)
by = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}[redop]


def number(of, index):
    return 1 + (of + index) % 2 if redop == "prod" else 1 + (3 * of + index) % 5


for size in map(int, sizes):
    count = size // torch.empty(0, dtype=kind).element_size()
    index = torch.arange(count)
    array = torch.zeros(count, dtype=kind)
    cuts = [count // world + (each < count % world) for each in range(world)]
    starts = [sum(cuts[:each]) for each in range(world)]
    part = slice(starts[rank], starts[rank] + cuts[rank])
    # Gloo scatters and gathers equal parts only: the last few numbers of an odd size stay behind.
    equal = count // world
    parts = [torch.zeros(equal, dtype=kind) for _ in range(world)]

    def step():
        if operation == "allreduce":
            dist.all_reduce(array, by)
        elif operation == "reduce":
            dist.reduce(array, 0, by)
        elif operation == "broadcast":
            dist.broadcast(array, 0)
        elif operation == "scatter":
            dist.scatter(parts[rank], [array[start:][:equal] for start in starts] if rank == 0 else None, 0)
        elif operation == "all_gather":
            dist.all_gather(parts, array[part][:equal].clone())
        elif operation == "gather":
            dist.gather(array[part][:equal].clone(), parts if rank == 0 else None, 0)
        else:
            dist.barrier()

    def check():
        array.copy_(number(rank, index))
        step()
        if operation in ("all_gather", "gather") and (operation == "all_gather" or rank == 0):
            expected = [number(of, index)[starts[of] :][:equal].to(kind) for of in range(world)]
            return sum(int((found != right).sum()) for found, right in zip(parts, expected))
        if operation == "scatter":
            return int((parts[rank] != number(0, index)[part][:equal].to(kind)).sum())
        if operation == "broadcast":
            return int((array != number(0, index).to(kind)).sum())
        if operation == "allreduce" or (operation == "reduce" and rank == 0):
            right = number(0, index)
            for of in range(1, world):
                other = number(of, index)
                right = {
                    "sum": right + other,
                    "prod": right * other,
                    "min": torch.minimum(right, other),
                    "max": torch.maximum(right, other),
                }[redop]
            return int((array != right.to(kind)).sum())
        return 0

    wrong = check()
    array.zero_()
    begun = time.perf_counter()
    for _ in range(5):
        step()
    rounds = torch.tensor([max(1, min(2_000_000, int(secs / ((time.perf_counter() - begun) / 5))))])
    dist.all_reduce(rounds, dist.ReduceOp.MIN)
    each, of_runs = [], []
    for _ in range(runs):
        dist.barrier()
        start = before = time.perf_counter()
        for _ in range(int(rounds)):
            step()
            now = time.perf_counter()
            each.append(now - before)
            before = now
        of_runs.append((before - start) / int(rounds))
    wrong += check()
    each.sort()
    of_runs.sort()
    p99 = each[int(0.99 * (len(each) - 1))]
    print(json.dumps({"size": size, "time": of_runs[len(of_runs) // 2], "p99": p99, "wrong": wrong}), flush=True)
dist.barrier()
dist.destroy_process_group()
