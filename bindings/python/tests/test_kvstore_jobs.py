"""Stores of several workers: what MXNet's nightly tests expect, whoever holds the values, and what they never asked."""

from __future__ import annotations

import os
import re
import signal
import textwrap
from pathlib import Path

import pytest
from conftest import Ended, Stage, command

# How many workers, how many dedicated servers; the soak has all of them.
SOME = [(1, 1), (2, 0), (2, 2), (3, 1), (4, 3), (7, 2)]
ALL = [(workers, servers) for workers in (1, 2, 3, 4, 7) for servers in (0, 1, 2, 3)]
LAYOUTS = ALL if os.environ.get("SYNCLINE_ALL_LAYOUTS") else SOME
FEW = [(1, 0), (2, 1), (3, 2)]

BEGIN = """
    import hashlib, os, signal, sys, time
    import numpy as np
    import syncline as sl

    SMALL, BIG = (2, 3), (1200, 1200)
    ROUNDS = 3

    def full(shape, value, dtype="float32"):
        return np.full(shape, value, dtype)

    def rows(array):
        return sl.RowSparse(np.arange(len(array)), array, array.shape)

    def check(found, wanted, *where):
        found = found.to_dense() if isinstance(found, sl.RowSparse) else found
        assert (found == wanted).all(), (found.ravel()[:5], np.ravel(wanted)[:5], *where)

    def raises(kind, words, call):
        try:
            call()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{words}: nothing was raised")
"""


def run(
    stage: Stage,
    workers: int,
    servers: int,
    code: str,
    *,
    env: dict[str, str] | None = None,
    status: int | None = 0,
) -> Ended:
    more = ["--servers", str(servers)] if servers else []
    program = textwrap.dedent(BEGIN) + textwrap.dedent(code)
    result = stage.start(program, under=[command("syncline"), "run", "-n", str(workers), *more], env=env or {}).end(120)
    if status is not None:
        assert result.status == status, result
    return result


def said(ended: Ended, word: str) -> list[str]:
    """What followed `word` in the lines of the job, whoever printed them."""
    return re.findall(rf"\b{word}\b ?(.*)$", ended.out, re.MULTILINE)


# dist_sync_kvstore.py, with its numbers: the optimizer is Test with a scale of 2.
DENSE_AND_SPARSE = """
    kv = sl.kvstore.create("dist_sync")
    r, n = kv.rank, kv.num_workers
    kv.set_optimizer(sl.optimizer.Test(rescale_grad=2))
    for dtype in ("float32", "float16"):
        for shape, key in ((SMALL, f"3-{dtype}"), (BIG, f"99-{dtype}")):
            kv.init(key, full(shape, 1, dtype))
            for i in range(ROUNDS):
                kv.push(key, full(shape, r + 1, dtype))
                check(kv.pull(key), (n + 1) * n * 2 / 2 * (i + 1) + 1, key, i)

    kv.init("9", rows(full(SMALL, 1)))
    random = np.random.default_rng(r)
    for i in range(ROUNDS):
        kv.push("9", sl.RowSparse([r % 2], full((1, 3), r + 1), SMALL))
        ids = random.integers(0, 2, 3)
        found = sl.RowSparse.zeros(SMALL)
        kv.row_sparse_pull("9", out=found, row_ids=ids)
        wanted = np.zeros(SMALL)
        for row in set(ids.tolist()):
            wanted[row] = 1 + sum((rank + 1) * 2 * (i + 1) for rank in range(n) if rank % 2 == row)
        check(found, wanted, "sparse", i)

    kv.init("11", rows(full(SMALL, 1)))
    for i in range(ROUNDS):
        kv.push("11", sl.RowSparse.zeros(SMALL))
        check(kv.row_sparse_pull("11", row_ids=[1, 0, 1]), 1, "no rows")
        check(kv.row_sparse_pull("11", row_ids=[]), 0, "no ids")

    kv.init("100", rows(full(BIG, 1)))
    touched = [[row for row in range(0, BIG[0], 2 * (rank + 1)) if row % 10 < 3] for rank in range(n)]
    for i in range(ROUNDS):
        mine = touched[r]
        kv.push("100", sl.RowSparse(mine, full((len(mine), BIG[1]), r + 1), BIG))
        ids = random.integers(0, BIG[0], 300)
        wanted = np.zeros(BIG)
        wanted[ids] = 1
        for rank in range(n):
            present = np.intersect1d(ids, touched[rank])
            wanted[present] += (rank + 1) * 2 * (i + 1)
        check(kv.row_sparse_pull("100", row_ids=ids), wanted, "big sparse", i)

    raises(sl.UnknownKey, "Did you init", lambda: kv.pull("never", out=full(SMALL, 0), ignore_sparse=False))
    print("held", r, flush=True)
"""


@pytest.mark.parametrize(("workers", "servers"), LAYOUTS)
def test_sums_of_all_workers_dense_and_sparse(stage: Stage, workers: int, servers: int) -> None:
    ended = run(stage, workers, servers, DENSE_AND_SPARSE)
    assert sorted(said(ended, "held")) == sorted(map(str, range(workers))), ended


COMPRESSED = """
    def model(residual, gradient, threshold=0.5):
        residual += gradient
        up, down = residual >= threshold, residual <= -threshold
        sent = np.where(up, threshold, np.where(down, -threshold, 0)).astype(np.float32)
        residual -= sent
        return sent

    kv = sl.kvstore.create("dist_sync")
    r, n = kv.rank, kv.num_workers
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    kv.set_optimizer(sl.optimizer.Test(rescale_grad=2))
    for key, shape in (("1121", SMALL), ("112221", (1211, 1211)), ("11221", BIG)):
        kv.init(key, full(shape, 0))
        check(kv.pull(key), 0, "before")
        wanted = 0
        for gradient, step in ((0, 0), (0.4, 0), (0.1, 1), (0.2, 0), (0.3, 1), (0.5, 1)):
            kv.push(key, full(shape, gradient))
            wanted += step * 0.5 * 2 * n
            check(kv.pull(key), wanted, key, gradient)
    kv.init("1", full(SMALL, 1))
    check(kv.pull("1"), 1, "as it was")

    kv.init("random", full((123, 45), 0))
    random, residual, total = np.random.default_rng(5), np.zeros((123, 45), np.float32), np.zeros((123, 45), np.float32)
    for i in range(5):
        gradient = random.uniform(-0.6, 0.6, (123, 45)).astype(np.float32)
        kv.push("random", gradient)
        total += 2 * n * model(residual, gradient)
        check(kv.pull("random"), total, "random", i)
    raises(sl.SynclineError, "row-sparse", lambda: kv.push("1", rows(full(SMALL, 1))))

    one = sl.kvstore.create("dist_sync")
    one.set_gradient_compression({"type": "1bit", "threshold": 0})
    one.set_optimizer(sl.optimizer.Test(rescale_grad=2))
    for key, shape in (("a", SMALL), ("b", (1211, 1211))):
        one.init(key, full(shape, 0))
        for gradient, wanted in ((1, 2 * n), (-1, 0), (2, 2 * n), (0, 4 * n), (-2, 2 * n)):
            one.push(key, full(shape, gradient))
            check(one.pull(key), wanted, "1bit", gradient)
    print("held", r, flush=True)
"""


@pytest.mark.parametrize(("workers", "servers"), LAYOUTS)
def test_two_bits_and_one_bit_with_what_was_left(stage: Stage, workers: int, servers: int) -> None:
    ended = run(stage, workers, servers, COMPRESSED)
    assert len(said(ended, "held")) == workers, ended


OTHERS = """
    kv = sl.kvstore.create("dist_device_sync")
    r, n = kv.rank, kv.num_workers
    assert kv.type == "dist_device_sync"
    kv.set_optimizer(sl.optimizer.Test(rescale_grad=2))
    for key, shape in (("3", SMALL), ("99", BIG)):
        kv.init([key, key + "both"], [full(shape, 1), full(shape, 1)])
        for i in range(ROUNDS):
            wanted = (n + 1) * n * 2 * 2 / 2 * (i + 1) + 1
            kv.push(key, [full(shape, r + 1)] * 2)
            outs = [full(shape, 0), full(shape, 0)]
            kv.pull(key, out=outs)
            check(outs[0], wanted, key, i)
            check(outs[1], wanted, key, i)
            kv.pushpull(key + "both", [full(shape, r + 1)] * 2, out=outs)
            check(outs[1], wanted, key, i)

    plain = sl.kvstore.create("dist_sync")
    plain.broadcast("w", full(SMALL, r + 7), out=(out := full(SMALL, 0)))
    check(out, 7, "worker 0's")
    for i in range(ROUNDS):
        values = [full(SMALL, r + 1), full(SMALL, r + 1)]
        plain.pushpull("w", values)
        check(values[0], (n + 1) * n, "no accumulation", i)

    many = sl.kvstore.create("dist_sync")
    small, big = range(100), range(100, 200)
    many.init(list(small), [full(SMALL, i) for i in small])
    for i in big:
        many.init(i, full((110, 110), i))
    for i in [*small, *big]:
        check(many.pull(i), i, "many")

    for dense in (True, False):
        trainer = sl.kvstore.create("dist")
        trainer.init("x", full(SMALL, 1) if dense else rows(full(SMALL, 1)))
        trainer.set_optimizer(sl.optimizer.SGD(learning_rate=1.0))
        trainer.push("x", full(SMALL, r + 1) if dense else rows(full(SMALL, r + 1)))
        check(trainer.pull("x"), 1 - (1 + n) * n / 2, "trainer", dense)
    print("held", r, flush=True)
"""


@pytest.mark.parametrize(("workers", "servers"), LAYOUTS)
def test_devices_pushpull_broadcast_many_keys_and_a_trainer(stage: Stage, workers: int, servers: int) -> None:
    # Arrays of this size count as big: they are split over servers.
    ended = run(stage, workers, servers, OTHERS, env={"MXNET_KVSTORE_BIGARRAY_BOUND": "10000"})
    assert len(said(ended, "held")) == workers, ended


ASYNC = """
    kv = sl.kvstore.create("dist_async")
    r, n = kv.rank, kv.num_workers
    kv.init("w", full(SMALL, 1))
    kv.init("e", rows(full(BIG, 1)))
    raises(sl.SynclineError, "optimizer", lambda: kv.push("w", full(SMALL, 1)))
    check(kv.pull("w"), 1, "nothing happened")
    kv.barrier()
    kv.set_optimizer(sl.optimizer.Test(rescale_grad=2))
    kv.barrier()
    for i in range(5):
        kv.push("w", full(SMALL, r + 1))
        kv.push("e", sl.RowSparse([r, 500], full((2, BIG[1]), r + 1), BIG))
        assert (kv.pull("w") >= 1 + 2 * (r + 1) * (i + 1)).all()  # my own are in
    kv.barrier()
    check(kv.pull("w"), 1 + 5 * n * (n + 1), "all")
    found = kv.row_sparse_pull("e", row_ids=[500, r, 700])
    check(found.values[:, 0], [1 + 10 * (r + 1), 1 + 5 * n * (n + 1), 1], "rows")
    print("held", r, flush=True)
"""


@pytest.mark.parametrize(("workers", "servers"), LAYOUTS)
def test_without_rounds_every_push_counts_at_once(stage: Stage, workers: int, servers: int) -> None:
    ended = run(stage, workers, servers, ASYNC)
    assert len(said(ended, "held")) == workers, ended


# What went wrong there and must not here.

QUIRKS = """
    kv = sl.kvstore.create("dist_sync")
    r, n = kv.rank, kv.num_workers
    names = [f"key{i}" for i in range(6)]
    order = names[r:] + names[:r]                       # every worker in its own order
    for name in order:
        kv.init(name, full(SMALL, float(name[3:]) if r == 0 else -1))
    for name in names:
        check(kv.pull(name), float(name[3:]), "worker 0's value, whatever the order")
    kv.barrier()
    raises(sl.ConfigurationError, "duplicate init", lambda: kv.init("key0", full(SMALL, 5)))

    for _ in range(3 if r == 0 else 0):                 # rounds count workers, not requests
        kv.push("key0", full(SMALL, 100))
    for _ in range(3 if r else 0):
        kv.push("key0", full(SMALL, 1))
    check(kv.pull("key0"), 100 + (n - 1), "one of each worker")

    raises(sl.UnknownKey, "Did you init", lambda: kv.pull("nothing"))
    raises(sl.ShapeMismatch, "key1", lambda: kv.push("key1", full((3, 2), 1)))
    raises(sl.ShapeMismatch, "key1", lambda: kv.push("key1", full(SMALL, 1, "float64")))
    raises(sl.ConfigurationError, "never as code", lambda: kv.send_command_to_servers(0, b"cos\\nsystem\\n(S'true'\\ntR."))
    raises(sl.SynclineError, "", lambda: kv.set_updater(lambda key, recv, local: None))
    raises(sl.SynclineError, "", lambda: kv.pull("key1", out=rows(full(SMALL, 0)), ignore_sparse=False))
    value = full(SMALL, r + 1)
    kv.push("key1", value)                              # and it goes on
    value[:] = 77
    out = kv.pull("key1")
    check(out, n * (n + 1) / 2, "still there")
    check(value, 77, "the pushed array is the caller's")

    numbers = sl.kvstore.create("dist_sync")
    numbers.init([2**32 + 2, 2], [full(SMALL, 5), full(SMALL, 6)])
    check(numbers.pull(2**32 + 2), 5)
    check(numbers.pull(2), 6)
    part = sl.RowSparse([1], full((1, 3), 4), (5, 3))   # not every row has to be there
    numbers.init(3, part)
    outs = [sl.RowSparse.zeros((5, 3)) for _ in range(3)]
    numbers.row_sparse_pull(3, out=outs, row_ids=[[1, 0], [4], []])
    assert [out.indices.tolist() for out in outs] == [[0, 1], [4], []]
    check(outs[0].values[:, 0], [0, 4])
    assert numbers.num_dead_node == 0
    print("held", r, flush=True)
"""


@pytest.mark.parametrize(("workers", "servers"), FEW)
def test_what_went_wrong_there(stage: Stage, workers: int, servers: int) -> None:
    ended = run(stage, workers, servers, QUIRKS)
    assert len(said(ended, "held")) == workers, ended


RATES = """
    kv = sl.kvstore.create("dist_sync")
    r, n = kv.rank, kv.num_workers
    kv.init("w", full(SMALL, 0))
    sgd = sl.optimizer.SGD(learning_rate=1.0, momentum=0.5)
    if r == 0:
        kv.set_optimizer(sgd)
    kv.barrier()
    kv.push("w", full(SMALL, 1))
    check(kv.pull("w"), -n, "first")
    kv.barrier()
    if r == n - 1 and n == 1:
        sgd.learning_rate = 0.0
    elif r == 0:
        sgd.set_learning_rate(0.0)
    kv.barrier()
    kv.push("w", full(SMALL, 1))
    check(kv.pull("w"), -1.5 * n, "momentum only")
    kv.barrier()
    if r == 0:
        kv.set_learning_rate(2.0)
    kv.barrier()
    kv.push("w", full(SMALL, 1))
    check(kv.pull("w"), -(1.5 + 0.25 + 2 - 0.0) * n, "the new rate")
    print("held", r, flush=True)
"""


@pytest.mark.parametrize(("workers", "servers"), FEW)
def test_a_learning_rate_that_is_changed_later_reaches_the_servers(stage: Stage, workers: int, servers: int) -> None:
    ended = run(stage, workers, servers, RATES)
    assert len(said(ended, "held")) == workers, ended


COMPRESSED_PULLS = """
    kv = sl.kvstore.create("dist_sync")
    r, n = kv.rank, kv.num_workers
    exact = np.random.default_rng(3).standard_normal((40, 51)).astype(np.float32)
    code = os.environ["CODE"]
    kv.set_gradient_compression({"type": code, "pull": True})
    kv.init("w", exact)
    kv.init("h", exact.astype(np.float16))
    kv.init("e", rows(exact))
    rounded = kv.pull("w")
    if code == "fp16":
        check(rounded, exact.astype(np.float16).astype(np.float32))
    elif code == "bf16":
        nearest = (exact.view(np.uint32) + 0x7FFF + (exact.view(np.uint32) >> 16 & 1)) & 0xFFFF0000
        check(rounded, nearest.view(np.float32))
    else:
        assert 0 < np.abs(rounded - exact).max() <= np.abs(exact).max() / 127
    check(kv.pull("h"), exact.astype(np.float16), "only float32 travels in fewer bits")
    check(kv.row_sparse_pull("e", row_ids=[3, 1, 3]).values, exact[[1, 3]], "rows neither")
    # What is stored stays exact: rounding happens on the way.
    kv.push("w", full((40, 51), 1))
    assert np.allclose(kv.pull("w"), n, rtol=0.01)
    print("pulled", hashlib.sha256(rounded.tobytes()).hexdigest(), flush=True)
"""


@pytest.mark.parametrize("code", ["fp16", "bf16", "int8"])
def test_pulls_in_few_bits_are_rounded_alike_wherever_values_live(stage: Stage, code: str) -> None:
    found = set()
    for workers, servers, transport in ((1, 0, "auto"), (2, 0, "auto"), (2, 1, "tcp"), (2, 2, "tcp")):
        env = {"CODE": code, "SYNCLINE_TRANSPORT": transport, "MXNET_KVSTORE_BIGARRAY_BOUND": "1000000"}
        pulled = said(run(stage, workers, servers, COMPRESSED_PULLS, env=env), "pulled")
        assert len(pulled) == workers
        found.update(pulled)
    assert len(found) == 1, found


def test_pulls_come_in_few_bits_only_where_that_keeps_a_weight(stage: Stage) -> None:
    code = """
        kv = sl.kvstore.create("dist_sync")
        raises(sl.ConfigurationError, "cannot be pulled in 2bit", lambda: kv.set_gradient_compression({"type": "2bit", "pull": True}))
        print("held", flush=True)
    """
    assert said(run(stage, 1, 0, code), "held")


TRAINED = """
    kv = sl.kvstore.create("dist_sync")
    r, n = kv.rank, kv.num_workers
    random = np.random.default_rng(0)
    start = {f"layer{i}": random.standard_normal((61, 67)).astype(np.float32) for i in range(5)}
    for name, value in start.items():
        kv.init(name, value)
    kv.init("rows", rows(random.standard_normal((1000, 5)).astype(np.float32)))
    kv.set_optimizer(sl.optimizer.create(os.environ["OPTIMIZER"], wd=0.01, clip_gradient=0.8, rescale_grad=0.5))
    for step in range(6):
        futures = []
        for place, name in enumerate(start):
            gradient = np.random.default_rng([step, place, r]).standard_normal((61, 67)).astype(np.float32)
            futures.append(kv.push(name, gradient, priority=-place, wait=False))
        ids = np.random.default_rng([step, 99, r]).integers(0, 1000, 50)
        kv.push("rows", sl.RowSparse(ids, np.random.default_rng([step, 98, r]).standard_normal((50, 5)).astype(np.float32), (1000, 5)))
        pulled = kv.pull(list(start), wait=False)
        pulled.wait()
    digest = hashlib.sha256()
    for name in [*start, "rows"]:
        digest.update(kv.pull(name).tobytes())
    print("weights", digest.hexdigest(), flush=True)
"""


@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_where_values_live_never_shows_in_them(stage: Stage, optimizer: str) -> None:
    found = set()
    for servers, bound in ((0, "1000000"), (1, "1000"), (3, "1000"), (2, "1000000")):
        env = {"MXNET_KVSTORE_BIGARRAY_BOUND": bound, "OPTIMIZER": optimizer}
        found.update(said(run(stage, 3, servers, TRAINED, env=env), "weights"))
    assert len(found) == 1, found


STATES = """
    kv = sl.kvstore.create("dist_sync")
    r, n = kv.rank, kv.num_workers
    part = os.environ["PART"]
    at = 0 if part in ("whole", "first") else 4
    keys = ["w", "e"]
    start = np.load(os.environ["WEIGHTS"]) if at else {"w": full((37, 11), 1), "e": full((40, 3), 1)}
    kv.init("w", start["w"])
    kv.init("e", rows(start["e"]))
    if part != "second":
        kv.set_optimizer(sl.optimizer.Adam(learning_rate=0.1))
    else:
        kv.load_optimizer_states(os.environ["STATES"])
        assert kv.optimizer == sl.optimizer.Adam(learning_rate=0.1)
    for step in range(at, 4 if part == "first" else 8):
        # The sum over workers is the same however many there are.
        total = np.random.default_rng(step).integers(-8, 9, (37, 11)).astype(np.float32)
        kv.push("w", total if r == 0 else full((37, 11), 0))
        kv.push("e", sl.RowSparse([step, 20], full((2, 3), 1), (40, 3)) if r == 0 else sl.RowSparse.zeros((40, 3)))
    weights = dict(zip(keys, kv.pull(keys)))
    if part == "first":
        kv.save_optimizer_states(os.environ["STATES"], dump_optimizer=True)
        if r == 0:
            np.savez(os.environ["WEIGHTS"], **weights)
    print("weights", hashlib.sha256(weights["w"].tobytes() + weights["e"].tobytes()).hexdigest(), flush=True)
"""


@pytest.mark.parametrize(("first", "second"), [((3, 2), (2, 1)), ((1, 0), (3, 3))])
def test_states_move_to_any_number_of_workers_and_servers(
    stage: Stage, tmp_path: Path, first: tuple[int, int], second: tuple[int, int]
) -> None:
    env = {"STATES": str(tmp_path / "states"), "WEIGHTS": str(tmp_path / "weights.npz")}
    whole = set(said(run(stage, 2, 0, STATES, env={**env, "PART": "whole"}), "weights"))
    run(stage, *first, STATES, env={**env, "PART": "first"})
    moved = set(said(run(stage, *second, STATES, env={**env, "PART": "second"}), "weights"))
    assert whole == moved
    assert len(whole) == 1


KILLED = """
    kv = sl.kvstore.create("dist_sync")
    r = kv.rank
    kv.init("w", full(BIG, 0))
    kv.push("w", full(BIG, 1))
    kv.pull("w")
    if r == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    try:
        kv.push("w", full(BIG, 1))
        kv.pull("w")
    except sl.PeerLost as error:
        print("named", error.rank, time.monotonic() - started < 1.5, flush=True)
"""


@pytest.mark.parametrize(("workers", "servers"), [(3, 0), (3, 1)])
def test_a_worker_that_is_killed_in_a_round_is_named(stage: Stage, workers: int, servers: int) -> None:
    ended = run(stage, workers, servers, KILLED, status=None)
    assert ended.status == 128 + signal.SIGKILL, ended
    named = said(ended, "named")
    assert len(named) == workers - 1, ended
    assert all(line.endswith("True") for line in named), ended


# Every push adds one to every number, so the value tells how many counted, and half of one shows.
SURVIVED = """
    import random, threading
    kv = sl.kvstore.create(os.environ["KIND"])
    kv.set_optimizer(sl.optimizer.SGD(learning_rate=-1.0))
    kv.init("w", full(BIG, 0))
    kv.barrier()
    diary = os.open(os.environ["DIARY"], os.O_RDWR | os.O_CREAT)
    if kv.rank == 1:
        after = random.Random(int(os.environ["SEED"])).uniform(0.02, 0.25)
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    for step in range(1, 100_000 if kv.rank == 1 else 21):
        kv.push("w", full(BIG, 1))
        kv.pull("w")
        if kv.rank == 1:
            os.pwrite(diary, str(step).encode(), 0)
    while kv.num_dead_node != 1:
        time.sleep(0.001)
    kv.barrier()  # of those who live
    value = kv.pull("w")
    assert (value == value.flat[0]).all(), "half a push"
    print("counted", int(value.flat[0]), kv.num_dead_node, flush=True)
"""


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_survivors_go_on_with_whole_pushes(stage: Stage, tmp_path: Path, kind: str, servers: int) -> None:
    for seed in range(4):
        diary = tmp_path / f"diary-{seed}"
        env = {"SYNCLINE_ON_PEER_LOSS": "continue", "KIND": kind, "SEED": str(seed), "DIARY": str(diary)}
        ended = run(stage, 3, servers, SURVIVED, env=env, status=None)
        counted = [tuple(map(int, line.split())) for line in said(ended, "counted")]
        acknowledged = int(diary.read_text() or 0)
        assert len(counted) == 2 and len(set(counted)) == 1, ended
        value, dead = counted[0]
        assert dead == 1 and value - 2 * 20 - acknowledged in (0, 1), (seed, acknowledged, ended)


def test_importing_the_package_starts_no_server(stage: Stage) -> None:
    code = """
        import os
        import syncline, multiverso, syncline.kvstore
        print("threads", len(os.listdir("/proc/self/task")), flush=True)
    """
    ended = stage.run(code, env={"DMLC_ROLE": "server", "OPENBLAS_NUM_THREADS": "1"})
    assert ended.status == 0 and said(ended, "threads") == ["1"], ended


def test_workers_that_disagree_about_a_key_are_told_so(stage: Stage) -> None:
    code = """
        kv = sl.kvstore.create("dist_sync")
        raises(sl.ContractMismatch, "w", lambda: kv.init("w", full((2, 3 + kv.rank), 0)) or kv.barrier())
        print("held", flush=True)
    """
    ended = run(stage, 2, 0, code, status=None)
    assert said(ended, "held"), ended


def test_a_store_joins_the_job_by_itself_and_runs_alone_too(stage: Stage) -> None:
    code = """
        kv = sl.kvstore.create("dist_async")
        kv.init(1, full(SMALL, 1))
        kv.set_optimizer(sl.optimizer.SGD(learning_rate=0.5))
        kv.push(1, full(SMALL, 1))
        check(kv.pull(1), 0.5)
        assert (kv.rank, kv.num_workers, sl.size()) == (0, 1, 1)
        print("held", flush=True)
    """
    ended = stage.run(textwrap.dedent(BEGIN) + textwrap.dedent(code))
    assert ended.status == 0 and said(ended, "held"), ended
