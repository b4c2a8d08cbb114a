"""Rows pushed and pulled as they come, without a row-sparse array of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import syncline as sl

ROWS, COLS = 50, 3


@pytest.fixture(params=["local", "dist_async", "dist_sync"])
def kv(request: pytest.FixtureRequest) -> Iterator[sl.kvstore.KVStore]:
    store = sl.kvstore.create(request.param)
    for key in ("rows", "array"):
        store.init(key, sl.RowSparse(np.arange(ROWS), np.ones((ROWS, COLS), np.float32), (ROWS, COLS)))
    store.set_optimizer(sl.optimizer.SGD(learning_rate=0.5, wd=0.1))
    yield store
    sl.shutdown()


@pytest.mark.parametrize("ids", [[7, 3, 7, 49], [0, 1, 2], [], np.array([[5, 5], [4, 0]]), (9,)])
def test_rows_as_they_come_are_those_of_an_array_of_them(kv: sl.kvstore.KVStore, ids: Any) -> None:
    flat = np.ravel(np.asarray(ids, np.int64))
    gradient = np.arange(len(flat) * COLS, dtype=np.float32).reshape(-1, COLS)
    for _ in range(3):
        kv.push("array", sl.RowSparse(flat, gradient, (ROWS, COLS)))
        kv.push_rows("rows", ids, gradient)
        np.testing.assert_array_equal(kv.pull("rows"), kv.pull("array"))
    whole = kv.pull("rows")
    found = kv.pull_rows("rows", ids)
    assert found.dtype == np.float32 and found.shape == (len(flat), COLS)
    np.testing.assert_array_equal(found, whole[flat])
    out = np.full((len(flat), COLS), 9, np.float32)
    assert kv.pull_rows("rows", ids, out=out) is out
    np.testing.assert_array_equal(out, whole[flat])


def test_outputs_that_lie_oddly_are_filled_too(kv: sl.kvstore.KVStore) -> None:
    out = np.zeros((COLS, 4), np.float32).T
    kv.pull_rows("rows", [1, 2, 3, 4], out=out)
    assert (out == 1).all()


def test_what_does_not_fit_is_refused_and_changes_nothing(kv: sl.kvstore.KVStore) -> None:
    kv.init("dense", np.zeros((4, 2), np.float32))
    two = np.ones((2, COLS), np.float32)
    with pytest.raises(sl.UnknownKey, match="row id 50"):
        kv.push_rows("rows", [0, 50], two)
    with pytest.raises(sl.UnknownKey, match="row id -1"):
        kv.pull_rows("rows", [-1])
    with pytest.raises(sl.ShapeMismatch, match="for 3 rows"):
        kv.push_rows("rows", [0, 1, 2], two)
    with pytest.raises(sl.ShapeMismatch, match="float64"):
        kv.push_rows("rows", [0, 1], two.astype(np.float64))
    with pytest.raises(sl.ShapeMismatch, match="for 1 rows"):
        kv.pull_rows("rows", [0], out=two)
    with pytest.raises(sl.UnknownKey, match="doesn't exist"):
        kv.push_rows("none", [0, 1], two)
    with pytest.raises(sl.ConfigurationError, match="row-sparse"):
        kv.pull_rows("dense", [0])
    with pytest.raises(sl.DTypeMismatch, match="whole numbers"):
        kv.push_rows("rows", [0.5, 1], two)
    with pytest.raises(sl.DTypeMismatch, match="hint: push"):
        kv.push_rows("rows", [0], sl.RowSparse([0], two[:1], (ROWS, COLS)))
    assert (kv.pull("rows") == 1).all()
