"""Plays a scenario on MXNet's own KVStore and prints what was pulled: `store.py SCENARIO.json`, alone or as a worker of a cluster.

A scenario is `{"type", "optimizer": [name, options] or null, "compression": {…} or null, "steps": [[what, key, …], …]}`. Numbers follow from a
seed and the worker's rank, so both sides compute them. The answer is one JSON list of lists, numbers as the hex of their bits.
"""

import json
import os
import sys

import mxnet as mx
import numpy


def numbers(shape, seed, rank):
    count = int(numpy.prod(shape))
    places = numpy.arange(count, dtype=numpy.int64)
    return ((places * 7919 + seed * 104729 + rank * 31337 + 12345) % 2003 / 1001.5 - 1.0).astype("float32").reshape(shape)


def main():
    scenario = json.loads(open(sys.argv[1]).read())
    kv = mx.kv.create(scenario["type"])
    if scenario["compression"]:
        kv.set_gradient_compression(scenario["compression"])
    shapes, found = {}, []
    chosen = False

    def choose():
        if scenario["optimizer"]:
            name, options = scenario["optimizer"]
            kv.set_optimizer(mx.optimizer.create(name, **options))

    for what, key, *more in scenario["steps"]:
        if what.startswith("init"):
            shape, seed = more
            shapes[key] = tuple(shape)
            value = mx.nd.array(numbers(shape, seed, 0))
            kv.init(key, value.tostype("row_sparse") if what == "init_rows" else value)
            continue
        if not chosen:
            choose()
            chosen = True
            kv._barrier()
        if what == "push":
            kv.push(key, [mx.nd.array(numbers(shapes[key], seed, kv.rank)) for seed in more])
        elif what == "push_rows":
            ids, seed = more
            values = numbers((len(ids), *shapes[key][1:]), seed, kv.rank)
            kv.push(key, mx.nd.sparse.row_sparse_array((values, ids), shape=shapes[key]))
        elif what == "pull":
            out = mx.nd.zeros(shapes[key])
            kv.pull(key, out=out)
            found.append(out.asnumpy())
        elif what == "pull_rows":
            out = mx.nd.sparse.zeros("row_sparse", shapes[key])
            kv.row_sparse_pull(key, out=out, row_ids=mx.nd.array(more[0], dtype="int64"))
            found.append(out.tostype("default").asnumpy())
    text = json.dumps([[format(bits, "x") for bits in each.reshape(-1).view("<u4").tolist()] for each in found])
    with open(os.environ["ANSWER"] + str(kv.rank), "w") as answer:
        answer.write(text)


main()
