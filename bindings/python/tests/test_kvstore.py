"""Stores of one process: what MXNet's own unit tests and tutorials expect, and what they do not ask for but users need."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import syncline as sl
from dlpack import Tensor
from numpy.typing import NDArray

SHAPE = (4, 4)
Array = NDArray[Any]
KEYS: list[tuple[Any, list[Any]]] = [(3, [5, 7, 11]), ("a", ["b", "c", "d"])]
LOCAL = ["local", "local_update_cpu", "local_allreduce_cpu", "device", "local_allreduce_device", "row_sparse"]


def full(value: float, dtype: str = "float32") -> Array:
    return np.full(SHAPE, value, dtype)


def rows(array: Array) -> sl.RowSparse:
    return sl.RowSparse(np.arange(len(array)), array, array.shape)


def store(kind: str = "local", key: Any = 3, keys: Any = (5, 7, 11), sparse: bool = False) -> sl.kvstore.KVStore:
    """As MXNet's tests begin: zeros in all keys."""
    kv = sl.kvstore.create(kind)
    zeros = rows(full(0)) if sparse else full(0)
    kv.init(key, zeros)
    kv.init(list(keys), [zeros] * len(keys))
    return kv


def add(key: Any, recv: Any, local: Array) -> None:
    local += recv.to_dense() if isinstance(recv, sl.RowSparse) else recv


# MXNet's unit tests


def test_init() -> None:
    kv = sl.kvstore.create()
    kv.init(3, full(1) * 4)
    out = full(0)
    assert kv.pull(3, out=out) is out
    assert (out == 4).all()


@pytest.mark.parametrize("kind", LOCAL)
def test_the_type_is_the_name_in_lower_case(kind: str) -> None:
    assert sl.kvstore.create(kind.upper()).type == kind


@pytest.mark.parametrize(("key", "keys"), KEYS)
@pytest.mark.parametrize("sparse", [False, True])
def test_single_and_list(key: Any, keys: list[Any], sparse: bool) -> None:
    kv = store("local", key, keys, sparse)
    ones = rows(full(1)) if sparse else full(1)
    kv.push(key, ones)
    assert (kv.pull(key) == 1).all()
    four = rows(full(4)) if sparse else full(4)
    kv.push(keys, [four] * 3)
    outs = [full(0) for _ in keys]
    kv.pull(keys, out=outs)
    assert all((out == 4).all() for out in outs)


@pytest.mark.parametrize(("key", "keys"), KEYS)
@pytest.mark.parametrize("kind", ["local", "device"])
def test_aggregator(key: Any, keys: list[Any], kind: str) -> None:
    kv = store(kind, key, keys)
    outs = [full(0) for _ in range(4)]
    kv.push(key, [full(1)] * 4)
    kv.pull(key, out=outs)
    assert all((out == 4).all() for out in outs)
    kv.push(keys, [[full(2)] * 4] * 3)
    of_keys = [[full(0) for _ in range(4)] for _ in keys]
    kv.pull(keys, out=of_keys)
    assert all((out == 8).all() for outs in of_keys for out in outs)


@pytest.mark.parametrize(("key", "keys"), KEYS)
@pytest.mark.parametrize("sparse", [False, True])
def test_updater(key: Any, keys: list[Any], sparse: bool) -> None:
    kv = store("local", key, keys, sparse)
    seen: list[Any] = []

    def update(given: Any, recv: Any, local: Array) -> None:
        seen.append(given)
        add(given, recv, local)

    kv._set_updater(update)
    ones = rows(full(1)) if sparse else full(1)
    kv.push(key, [ones] * 4)
    assert (kv.pull(key) == 4).all()
    for _ in range(4):
        kv.push(keys, [[ones] * 4] * 3)
    assert all((out == 16).all() for out in kv.pull(keys))
    assert seen == [key, *keys * 4]  # the user's own, in the order of the call


def test_get_type_and_who_pushes() -> None:
    kv = sl.kvstore.create("local_allreduce_cpu")
    assert (kv.type, kv.rank, kv.num_workers, kv.num_dead_node, kv.num_dead_node()) == ("local_allreduce_cpu", 0, 1, 0, 0)


@pytest.mark.parametrize("kind", ["device", "local"])
def test_pull_sums_devices_and_leaves_other_keys_alone(kind: str) -> None:
    kv = sl.kvstore.create(kind)
    kv.init(["a", "b"], [full(0), full(0)])
    kv.push("a", [full(1)] * 4)
    assert (kv.pull("a") == 4).all()
    assert (kv.pull("b") == 0).all()


@pytest.mark.parametrize("outs", [1, 4])
def test_row_sparse_pull(outs: int) -> None:
    kv = sl.kvstore.create("local")
    kv.init("e", rows(full(1)))
    random = np.random.default_rng(outs)
    ids = [random.integers(0, 4, (2, 2)) for _ in range(outs)]
    targets = [sl.RowSparse.zeros(SHAPE) for _ in range(outs)]
    kv.row_sparse_pull("e", out=targets if outs > 1 else targets[0], row_ids=ids if outs > 1 else ids[0])
    for target, wanted in zip(targets, ids, strict=True):
        listed = np.isin(np.arange(4), wanted)
        assert target.indices.tolist() == np.unique(wanted).tolist()
        assert (target.to_dense() == listed[:, None]).all()


def test_one_list_of_ids_serves_many_outputs_and_ids_may_be_anything_that_counts() -> None:
    kv = sl.kvstore.create("local")
    kv.init("e", rows(np.arange(16, dtype=np.float32).reshape(SHAPE)))
    targets = [sl.RowSparse.zeros(SHAPE) for _ in range(3)]
    kv.row_sparse_pull("e", out=targets, row_ids=np.array([3.0, 1.0, 3.0], np.float32))
    assert all(target.indices.tolist() == [1, 3] and target.values[0, 0] == 4 for target in targets)
    assert kv.row_sparse_pull("e", row_ids=[2, 0]).values[:, 0].tolist() == [0, 8]
    assert kv.row_sparse_pull("e", row_ids=[]).to_dense().any() == np.False_
    kv.init("f", rows(full(5)))
    found = kv.row_sparse_pull(["e", "f"], row_ids=[[1], [2, 3]])
    assert [each.indices.tolist() for each in found] == [[1], [2, 3]]
    with pytest.raises(sl.ShapeMismatch, match="row_ids doesn't match the number of values"):
        kv.row_sparse_pull("e", out=targets, row_ids=[[1], [2]])
    with pytest.raises(sl.UnknownKey, match="4"):
        kv.row_sparse_pull("e", row_ids=[4])
    with pytest.raises(sl.DTypeMismatch):
        kv.row_sparse_pull("e", row_ids=[0.5])


def test_sparse_aggregator() -> None:
    kv = sl.kvstore.create("row_sparse")
    kv.init("a", rows(full(0)))
    random = np.random.default_rng(0)
    dense = [(random.random(SHAPE) * (random.random((4, 1)) < 0.6)).astype(np.float32) for _ in range(4)]
    kv.push("a", [sl.RowSparse.from_dense(each) for each in dense])
    targets = [sl.RowSparse.zeros(SHAPE) for _ in range(4)]
    kv.row_sparse_pull("a", out=targets, row_ids=np.arange(4))
    total = sum(target.to_dense() for target in targets)
    np.testing.assert_allclose(total, 4 * np.sum(dense, axis=0), rtol=1e-6)


def test_a_pull_leaves_sparse_outputs_alone_unless_told_otherwise() -> None:
    kv = sl.kvstore.create("local")
    kv.init("a", rows(full(1)))
    out = rows(full(2))
    kv.pull("a", out=out)
    assert (out.to_dense() == 2).all()
    kv.pull("a", out=out, ignore_sparse=False)
    assert (out.to_dense() == 1).all()
    with pytest.raises(sl.DTypeMismatch, match="RowSparse"):
        kv.row_sparse_pull("a", out=full(0), row_ids=[1])
    kv.init("dense", full(1))
    with pytest.raises(sl.SynclineError, match="row-sparse"):
        kv.row_sparse_pull("dense", row_ids=[1])


@pytest.mark.parametrize(("good", "bad"), [(3, "a"), ("a", 3)])
def test_the_wrong_kind_of_key_is_refused_by_every_call(good: Any, bad: Any) -> None:
    kv = sl.kvstore.create()
    kv.init(good, rows(full(1)))
    calls: list[Callable[[], object]] = [
        lambda: kv.init(bad, full(1)),
        lambda: kv.push(bad, full(1)),
        lambda: kv.pull(bad),
        lambda: kv.row_sparse_pull(bad, row_ids=[1]),
        lambda: kv.pushpull(bad, full(1)),
    ]
    for call in calls:
        with pytest.raises(sl.ConfigurationError, match="Mixed key types are not allowed"):
            call()
    with pytest.raises(sl.ConfigurationError, match="inconsistent types of keys detected"):
        kv.push([good, bad], [full(1), full(1)])
    assert (kv.pull(good) == 1).all()


@pytest.mark.parametrize("kind", ["local", "device"])
def test_broadcast_and_pushpull(kind: str) -> None:
    kv = sl.kvstore.create(kind)
    out = full(0)
    kv.broadcast("a", full(1), out=out)
    assert (out == 1).all()
    outs = [full(0) for _ in range(4)]
    kv.broadcast(["b", "c"], [full(1), full(1)], out=[outs[:2], outs[2:]])
    assert all((each == 1).all() for each in outs)
    with pytest.raises(sl.ConfigurationError, match="duplicate init of key a"):
        kv.broadcast("a", full(1), out=out)
    for _ in range(3):
        kv.pushpull("a", [full(1)] * 4, out=out)
        assert (out == 4).all()
        values = [full(1) for _ in range(4)]
        kv.pushpull("a", values)
        assert all((each == 4).all() for each in values)
    kv.pushpull(["b", "c"], [[full(2)] * 4] * 2, out=[outs[:2], outs[2:]])
    assert all((each == 8).all() for each in outs)
    one = full(3)
    assert kv.pushpull("b", one) is one
    assert (one == 3).all()


def test_a_store_of_ones_own_is_found_by_its_name() -> None:
    @sl.kvstore.KVStoreBase.register
    class TestStore(sl.kvstore.KVStoreBase):
        __test__ = False
        type = "teststore"
        rank, num_workers = 0, 1

        def broadcast(self, key: Any, value: Array, out: Any, priority: int = 0) -> None:
            for each in out if isinstance(out, list) else [out]:
                each[:] = value

        def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
            total = sum(value) if isinstance(value, list) else value
            wanted = out if out is not None else value
            for each in wanted if isinstance(wanted, list) else [wanted]:
                each[:] = total

    kv: Any = sl.kvstore.create("TestStore")
    try:
        with pytest.warns(UserWarning, match="replaces .*TestStore.* 'teststore'"):
            sl.kvstore.KVStoreBase.register(TestStore)
        out = full(0)
        kv.broadcast(1, full(1), out)
        assert (out == 1).all()
        values = [full(1), full(1)]
        kv.pushpull(1, values)
        assert (values[0] == 2).all()
        kv.pushpull(1, values)
        assert (values[1] == 4).all()
        with pytest.raises(NotImplementedError):
            kv.set_optimizer(None)
    finally:
        del sl.kvstore.KVStoreBase.kv_registry["teststore"]


# Its nightly tests and tutorials


def test_the_numbers_of_the_tutorials() -> None:
    kv = store("local", 3, (5, 7, 9))
    kv.push(3, full(2))
    assert (kv.pull(3) == 2).all()
    kv.push(3, full(8))
    assert (kv.pull(3) == 8).all()
    kv.push(3, [full(1)] * 4)
    assert (kv.pull(3) == 4).all()

    def twice(key: Any, recv: Array, local: Array) -> None:
        local += 2 * recv

    kv.set_updater(twice)
    kv.push(3, full(1))
    assert (kv.pull(3) == 6).all()
    kv.set_updater(None)
    kv.push([5, 7, 9], [full(1)] * 3)
    kv.set_updater(twice)
    kv.push([5, 7, 9], [full(1)] * 3)
    assert all((each == 3).all() for each in kv.pull([5, 7, 9]))
    kv.push([5, 7, 9], [[full(1)] * 4] * 3)
    assert all((each == 11).all() for each in kv.pull([5, 7, 9]))

    kv = store("local", 3, (5, 7, 9))
    kv.set_optimizer(sl.optimizer.SGD())
    kv.push(3, full(1))
    np.testing.assert_allclose(kv.pull(3), -0.01)


def test_compression_of_devices_as_the_nightly_test_has_it() -> None:
    kv = store("local_allreduce_device")
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    kv.set_optimizer(sl.optimizer.Test(rescale_grad=2))

    def after(gradient: float) -> float:
        kv.push(3, [full(gradient)] * 4)
        found = kv.pull(3)
        assert (found == found[0, 0]).all()
        return float(found[0, 0])

    assert [after(each) for each in (0.4, 0.2, 0.2, 0.2)] == [0, 4, 4, 8]
    assert [after(-0.5) for _ in range(3)] == [4, 0, -4]


def test_ten_rounds_on_four_devices() -> None:
    kv = store("local", 3, (5, 7, 11))
    rate = 0.1

    def update(key: Any, recv: Array, local: Array) -> None:
        local += rate * recv

    kv.set_updater(update)
    random, result = np.random.default_rng(1), np.zeros(SHAPE)
    for _ in range(10):
        gradients = [random.uniform(-1, 1, SHAPE).astype(np.float32) for _ in range(4)]
        kv.push(3, gradients)
        result += rate * np.sum(np.asarray(gradients, np.float64), axis=0)
    found = kv.pull(3)
    assert np.abs(found - result).sum() / np.abs(result).sum() < 1e-6


# What they do not ask for


def test_urgent_calls_overtake_those_that_wait() -> None:
    kv = sl.kvstore.create("local")
    count = 100
    random = np.random.default_rng(5)
    urgency = random.permutation(count)
    begun: dict[int, float] = {}
    all_queued = threading.Event()

    def note(key: int, gradient: Array, weight: Array) -> None:
        begun[key] = time.monotonic()
        assert all_queued.wait(60), "a push in the background waited for an updater"
        time.sleep(0.001)  # so that two threads seldom begin at once

    kv.init(list(range(count)), [full(0)] * count)
    kv.set_updater(note)
    queued, futures = {}, []
    for key in range(count):
        future = kv.push(key, full(1), priority=int(urgency[key]), wait=False)
        assert future is not None
        futures.append(future)
        queued[key] = time.monotonic()
    all_queued.set()
    for future in futures:
        future.wait()
    # Pairs of which both stood in the queue when the first of them began: the less urgent one went first in hardly any. (Two
    # threads may begin two neighbours at once, in either order.)
    pairs = [(a, b) for a in range(count) for b in range(count) if begun[a] < begun[b] and queued[b] < begun[a]]
    wrong = sum(urgency[a] < urgency[b] for a, b in pairs)
    assert len(pairs) > 20 * count
    assert wrong <= 2 * count, (wrong, len(pairs))


@pytest.mark.parametrize("kind", LOCAL)
def test_only_stores_of_devices_compress(kind: str) -> None:
    kv = sl.kvstore.create(kind)
    if "device" in kind:
        kv.set_gradient_compression({"type": "1bit", "threshold": 0})
    else:
        with pytest.raises(sl.SynclineError, match="Gradient compression is not supported for this type of kvstore"):
            kv.set_gradient_compression({"type": "2bit"})


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"type": "3bit"}, "Unknown type for gradient compression 3bit"),
        ({"threshold": 0.5}, "type"),
        ({"type": "2bit", "threshold": 0}, "threshold"),
        ({"type": "2bit", "threshold": -1}, "threshold"),
        ({"type": "topk", "ratio": 2}, "ratio"),
        ("2bit", "dictionary"),
    ],
)
def test_compression_that_makes_no_sense_is_refused(words: Any, match: str) -> None:
    with pytest.raises(sl.ConfigurationError, match=match):
        sl.kvstore.create("device").set_gradient_compression(words)


def test_compression_is_for_dense_float32() -> None:
    kv = sl.kvstore.create("device")
    kv.init([1, 2], [full(0, "float64"), rows(full(0))])
    kv.set_gradient_compression({"type": "2bit"})
    with pytest.raises(sl.SynclineError, match="float32"):
        kv.push(1, full(1, "float64"))
    with pytest.raises(sl.SynclineError, match="row-sparse"):
        kv.push(2, rows(full(1)))


@pytest.mark.parametrize("name", ["", "locals", "dist_sync2", "nccl", "p3", "horovod"])
def test_an_unknown_type_is_refused(name: str) -> None:
    with pytest.raises(sl.ConfigurationError, match="local_allreduce_cpu"):
        sl.kvstore.create(name)
    with pytest.raises(sl.Closed):
        sl.rank()  # and nobody joined a job for it


def test_a_type_is_a_str() -> None:
    with pytest.raises(TypeError):
        sl.kvstore.create(3)  # type: ignore[arg-type]


def test_arrays_of_the_caller_are_neither_kept_nor_changed() -> None:
    kv = store()
    value = full(1)
    kv.init(4, value)
    value[:] = 9
    assert (kv.pull(4) == 1).all()
    value[:] = 2
    kv.push(4, value)
    value[:] = 9
    out = kv.pull(4)
    assert (out == 2).all()
    out[:] = 7
    kv.pull(4, out=out)
    assert (value == 9).all()
    assert (kv.pull(4) == 2).all()
    kept: list[Array] = []
    kv.set_updater(lambda key, recv, local: kept.extend((recv, local)))
    kv.push(4, full(5))
    kept[0][:] = kept[1][:] = 100
    assert (kv.pull(4) == 2).all()


def test_keys_are_64_bits_wide_and_numbers_are_not_names() -> None:
    kv = sl.kvstore.create()
    big = 2**32 + 2
    kv.init([2, big, -5, np.int64(6)], [full(each) for each in (1, 2, 3, 4)])
    assert [int(kv.pull(key)[0, 0]) for key in (2, big, -5, 6)] == [1, 2, 3, 4]
    assert kv.keys() == [-5, 2, 6, big]
    for bad in (2**63, 1.5, None, True, b"a"):
        with pytest.raises(sl.DTypeMismatch, match="no key"):
            kv.pull(bad)


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    kv = store()
    kv.push(3, full(1))
    for value, error in {
        "shape": (np.zeros((2, 8), np.float32), sl.ShapeMismatch),
        "dtype": (full(0, "float64"), sl.ShapeMismatch),
        "list": ([[1.0, 2.0]], sl.DTypeMismatch),
        "text": ("ones", sl.DTypeMismatch),
        "complex": (np.zeros(SHAPE, complex), sl.DTypeMismatch),
        "empty": ([], sl.SynclineError),
    }.values():
        with pytest.raises(error):
            kv.push(3, value)
    with pytest.raises(sl.ShapeMismatch):
        kv.pull(3, out=np.zeros((2, 8), np.float32))
    with pytest.raises(sl.ShapeMismatch):
        kv.push([3, 5], [full(1)])
    with pytest.raises(sl.ShapeMismatch, match="one value is needed"):
        kv.init(8, [full(1), full(2)])
    with pytest.raises(sl.UnknownKey, match="Did you init"):
        kv.push(99, full(1))
    with pytest.raises(sl.UnknownKey, match="Did you init"):
        kv.pull(99)
    with pytest.raises(sl.ConfigurationError, match="duplicate init of key 3"):
        kv.init(3, full(1))
    frozen = full(0)
    frozen.flags.writeable = False
    with pytest.raises(sl.ShapeMismatch, match="read-only"):
        kv.pull(3, out=frozen)
    both = np.zeros(20, np.float32)
    with pytest.raises(sl.ShapeMismatch, match="same memory"):
        kv.pull([3, 5], out=[both[:16].reshape(SHAPE), both[4:].reshape(SHAPE)])
    assert (kv.pull(3) == 1).all()


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8"]
)
def test_every_dtype_is_kept(dtype: str) -> None:
    kind: Any = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    kv = sl.kvstore.create("local")
    kv.init("a", np.ones((2, 3), kind))
    kv.push("a", [np.full((2, 3), 3, kind)] * 2)
    found = kv.pull("a")
    assert (found.dtype, found.shape) == (np.dtype(kind), (2, 3))
    assert (found == 6).all()
    out = np.zeros((2, 3), kind)
    kv.pull("a", out=out)
    assert (out == 6).all()
    kv.set_updater(add)
    kv.push("a", np.ones((2, 3), kind))
    assert (kv.pull("a") == 7).all()
    kv.init("r", sl.RowSparse([1], np.ones((1, 3), kind), (2, 3)))
    pulled = kv.row_sparse_pull("r", row_ids=[0, 1])
    assert pulled.values.dtype == np.dtype(kind)
    assert pulled.values.astype(float).tolist() == [[0, 0, 0], [1, 1, 1]]


def test_arrays_may_lie_in_any_way_and_belong_to_anybody() -> None:
    kv = sl.kvstore.create()
    fortran = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    kv.init("a", fortran)
    assert kv.pull("a").tolist() == [[0, 1, 2], [3, 4, 5]]
    wide = np.zeros((2, 6), np.float32)
    kv.pull("a", out=wide[:, ::2])
    assert wide[:, ::2].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not wide[:, 1::2].any()
    kv.push("a", Tensor(np.full((2, 3), 2, np.float32)))
    target = np.zeros((2, 3), np.float32)
    kv.pull("a", out=Tensor(target))
    assert (target == 2).all()
    kv.init("scalar", np.float32(3))
    assert kv.pull("scalar").shape == ()
    kv.push("scalar", np.array(4, np.float32))
    number = np.array(0, np.float32)
    kv.pull("scalar", out=number)
    assert number == 4
    kv.init("nothing", np.zeros((0, 3), np.float32))
    assert kv.pull("nothing").shape == (0, 3)
    same = np.zeros((2, 3), np.float32)
    kv.pull("a", out=[same, same])
    assert (same == 2).all()


def test_keys_that_stand_twice_in_a_call_are_taken_together() -> None:
    kv = store()
    kv.push([3, 5, 3], [full(1), full(2), full(3)])
    assert [float(each[0, 0]) for each in kv.pull([3, 5])] == [4, 2]


def test_an_updater_may_fail_and_may_not_call_the_store() -> None:
    kv = store()

    def fails(key: Any, recv: Array, local: Array) -> None:
        raise LookupError(f"no idea what {key} is")

    kv.set_updater(fails)
    with pytest.raises(LookupError, match="no idea what 3 is"):
        kv.push(3, full(1))
    kv.set_updater(lambda key, recv, local: kv.push(5, recv))
    with pytest.raises(sl.ConfigurationError, match="inside of an updater"):
        kv.push(3, full(1))
    kv.set_updater(fails)
    future = kv.push(3, full(1), wait=False)
    assert future is not None
    with pytest.raises(sl.SynclineError, match="no idea what 3 is"):
        future.wait()
    kv.set_updater(add)
    with pytest.raises(sl.SynclineError, match="no idea what 3 is"):
        kv.pull(3)
    kv.push(3, full(1))
    assert (kv.pull(3) == 1).all()
    with pytest.raises(sl.ConfigurationError, match="function"):
        kv.set_updater(3)  # type: ignore[arg-type]


def test_calls_in_the_background_keep_the_order_of_a_key() -> None:
    kv = store()
    kv.set_updater(add)
    futures = [kv.push(3, full(1), priority=-each, wait=False) for each in range(20)]
    coming = kv.pull(3, wait=False)
    assert (coming.wait(10) == 20).all()
    assert coming.wait() is coming.result()
    assert coming.done()
    assert all(future is not None and future.done() for future in futures)
    out = full(0)
    assert kv.pull(3, out=out, wait=False).wait() is out
    assert (out == 20).all()
    several = kv.pull([3, 5], wait=False).wait()
    assert [float(each[0, 0]) for each in several] == [20, 0]
    value = full(2)
    assert kv.pushpull(3, value, wait=False).wait() is value
    assert (value == 22).all()
    kv.init(8, rows(full(6)))
    assert kv.row_sparse_pull(8, row_ids=[2], wait=False).wait().indices.tolist() == [2]
    target = sl.RowSparse.zeros(SHAPE)
    kv.row_sparse_pull(8, out=target, row_ids=[1, 0], wait=False).wait()
    assert target.indices.tolist() == [0, 1]
    kv.flush()


def test_a_value_may_be_changed_while_its_push_goes_on() -> None:
    kv = store()
    value = full(1)
    kv.push(3, value, wait=False)
    value[:] = 5
    assert (kv.pull(3) == 1).all()


def test_other_threads_run_while_a_call_waits() -> None:
    kv = store()
    entered, leave = threading.Event(), threading.Event()

    def update(key: int, recv: Array, local: Array) -> None:
        entered.set()
        assert leave.wait(10)

    kv.set_updater(update)
    thread = threading.Thread(target=kv.push, args=(3, full(1)))
    thread.start()
    assert entered.wait(10)
    leave.set()
    thread.join()


def test_a_learning_rate_that_is_changed_later_counts() -> None:
    kv = store()
    sgd = sl.optimizer.SGD(learning_rate=1.0, momentum=0.5)
    kv.set_optimizer(sgd)
    kv.push(3, full(1))
    assert (kv.pull(3) == -1).all()
    sgd.learning_rate = 0.0
    kv.push(3, full(1))
    assert (kv.pull(3) == -1.5).all()  # the momentum is still there
    kv.set_learning_rate(2.0)
    assert sgd.learning_rate == 2.0
    assert kv.optimizer is sgd
    kv.push(3, full(1))
    assert (kv.pull(3) == -3.75).all()
    kv.set_optimizer(sl.optimizer.SGD(learning_rate=1.0))
    sgd.learning_rate = 100.0  # it is this store's no longer
    kv.push(3, full(1))
    assert (kv.pull(3) == -4.75).all()
    with pytest.raises(sl.ConfigurationError, match="an optimizer is needed"):
        kv.set_optimizer("sgd")  # type: ignore[arg-type]
    with pytest.raises(sl.ConfigurationError, match="optimizer"):
        store().set_learning_rate(1.0)


def test_an_optimizer_does_not_keep_a_store_alive() -> None:
    sgd = sl.optimizer.SGD()
    kv = store()
    kv.set_optimizer(sgd)
    gone = weakref.ref(kv)
    del kv
    gc.collect()
    assert gone() is None
    sgd.learning_rate = 0.5


def test_a_formula_of_ones_own() -> None:
    kv = store()
    kv.set_optimizer(sl.optimizer.Custom("m = beta*m + g; w -= lr * (m + wd*w)", params={"beta": 0.5}, learning_rate=1.0))
    kv.push(3, full(1))
    kv.push(3, full(1))
    assert (kv.pull(3) == -2.5).all()


@pytest.mark.parametrize("dump", [False, True])
def test_states_are_saved_and_loaded(tmp_path: Path, dump: bool) -> None:
    file = tmp_path / "states"
    adam = sl.optimizer.Adam(learning_rate=0.1)

    def trained(kv: sl.kvstore.KVStore, steps: int) -> Array:
        for step in range(steps):
            kv.push(3, full(step % 3 - 1.5))
        return np.asarray(kv.pull(3))

    whole = store()
    whole.set_optimizer(adam)
    trained(whole, 5)
    whole.save_optimizer_states(str(file), dump_optimizer=dump)
    weights = whole.pull(3)
    wanted = trained(whole, 4)

    again = sl.kvstore.create("device")
    again.init(3, weights)
    again.init([5, 7, 11], [full(0)] * 3)
    if not dump:
        again.set_optimizer(sl.optimizer.Adam(learning_rate=0.1))
    again.load_optimizer_states(str(file))
    assert again.optimizer == adam
    assert (trained(again, 4) == wanted).all()


def test_residuals_are_part_of_what_is_saved(tmp_path: Path) -> None:
    def made() -> sl.kvstore.KVStore:
        kv = store("device")
        kv.set_optimizer(sl.optimizer.Test())
        kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        return kv

    first = made()
    first.push(3, full(0.3))
    first.save_optimizer_states(tmp_path / "states")
    second = made()
    second.load_optimizer_states(tmp_path / "states")
    second.push(3, full(0.3))
    assert (second.pull(3) == 0.5).all()


def test_states_without_an_optimizer_or_a_file_are_refused(tmp_path: Path) -> None:
    kv = store()
    with pytest.raises(sl.ConfigurationError, match="optimizer"):
        kv.save_optimizer_states(tmp_path / "states")
    kv.set_optimizer(sl.optimizer.SGD())
    with pytest.raises(sl.SynclineError, match="missing"):
        kv.load_optimizer_states(tmp_path / "missing")
    (tmp_path / "rubbish").write_bytes(b"rubbish" * 100)
    with pytest.raises(sl.SynclineError):
        kv.load_optimizer_states(tmp_path / "rubbish")


def test_commands_are_answered_and_never_executed() -> None:
    kv = store()
    assert "ignored" in kv._send_command_to_servers(17, "anything")
    with pytest.raises(sl.ConfigurationError, match="data, never as code"):
        kv.send_command_to_servers(0, b"cos\nsystem\n(S'true'\ntR.")
    kv._barrier()
    kv.barrier()
    assert kv.is_capable("optimizer")
    with pytest.raises(sl.ConfigurationError):
        kv.is_capable("teleport")
    assert repr(kv) == "<syncline.KVStore: local, worker 0 of 1, 4 keys>"
