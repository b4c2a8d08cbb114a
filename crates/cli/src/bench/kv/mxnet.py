"""MXNet's own store, for `syncline bench kv --peers`: WHAT SIZE ROWS CODE SECS RUNS TYPE OPTIMIZER, as one worker of a cluster."""

import json
import sys
import time

import mxnet as mx
import numpy as np

COLS = 64
what, size, rows, code, secs, runs, kind, optimizer = sys.argv[1:]
size, rows, secs, runs = int(size), int(rows), float(secs), int(runs)
kv = mx.kv.create(kind)
if code != "none":
    kv.set_gradient_compression({"type": code, "threshold": 1.0})
random = np.random.default_rng(kv.rank)
batch = size // (4 * COLS)
if what == "rows":
    kv.init("values", mx.nd.ones((rows, COLS)).tostype("row_sparse"))  # an empty one is refused
    gradient, out = mx.nd.ones((batch, COLS)), mx.nd.sparse.zeros("row_sparse", (rows, COLS))
else:
    kv.init("values", mx.nd.zeros((size // 4,)))
    gradient, out = mx.nd.ones((size // 4,)), mx.nd.zeros((size // 4,))
if optimizer == "add":
    kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=-1.0))
else:
    kv.set_optimizer(mx.optimizer.create(optimizer))
kv._barrier()


def step():
    if what == "rows":
        ids = np.unique(random.integers(0, rows, batch))
        index = mx.nd.array(ids, dtype="int64")
        kv.push("values", mx.nd.sparse.row_sparse_array((gradient[: len(ids)], index), shape=(rows, COLS)))
        kv.row_sparse_pull("values", out=out, row_ids=index)
    else:
        kv.push("values", gradient)
        kv.pull("values", out=out)
    out.wait_to_read()


for _ in range(3):
    step()
begun = time.perf_counter()
for _ in range(3):
    step()
each = (time.perf_counter() - begun) / 3
# A round needs everybody, so all make as many: what worker 0 counts, passed on through the store itself.
count = mx.nd.array([max(3, min(100000, int(secs / each)))])
kv.init("count", count)
kv.pull("count", out=count)
rounds = int(count.asscalar())
for _ in range(runs):
    kv._barrier()
    times, start = [], time.perf_counter()
    before = start
    for _ in range(rounds):
        step()
        now = time.perf_counter()
        times.append(now - before)
        before = now
    times.sort()
    print(
        json.dumps(
            {
                "loops_per_s": rounds / (before - start),
                "p50": times[len(times) // 2],
                "p99": times[int(0.99 * (len(times) - 1))],
                "wrong": 0,
            }
        ),
        flush=True,
    )
kv._barrier()
