"""What a store is given and cannot use: errors that name the operation, the key and what to do."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import syncline as sl

SHAPE = (4, 2)


@pytest.fixture
def kv() -> sl.kvstore.KVStore:
    store = sl.kvstore.create("local")
    for key in ("a", "b"):
        store.init(key, np.zeros(SHAPE, np.float32))
    store.init("rows", sl.RowSparse(np.arange(4), np.ones(SHAPE, np.float32), SHAPE))
    return store


def test_a_value_that_is_none_is_named_with_its_operation_and_key(kv: sl.kvstore.KVStore) -> None:
    good = np.ones(SHAPE, np.float32)
    with pytest.raises(sl.DTypeMismatch, match=r"^push: key b: the value is of bool, not one of .*\nhint: .*astype"):
        kv.push(["a", "b"], [good, good.astype(bool)])
    with pytest.raises(sl.DTypeMismatch, match="^pushpull: key b: a value is an array or a RowSparse, not NoneType"):
        kv.pushpull(["a", "b"], [good, None], out=[good, good])
    with pytest.raises(sl.DTypeMismatch, match="^init: key c: the value is of complex128"):
        kv.init("c", np.ones(3, complex))
    with pytest.raises(sl.DTypeMismatch, match="^push_rows: key rows: a value is an array"):
        kv.push_rows("rows", [1], [[1.0, 2.0]])
    assert (kv.pull("a") == 0).all() and "c" not in kv.keys()


def test_an_output_that_cannot_be_written_is_named_with_its_operation_and_key(kv: sl.kvstore.KVStore) -> None:
    good, fixed = np.ones(SHAPE, np.float32), np.ones(SHAPE, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(sl.ShapeMismatch, match="^pull: key b: the array is read-only"):
        kv.pull(["a", "b"], out=[good, fixed])
    with pytest.raises(sl.DTypeMismatch, match="^pull: key a: a writable array is needed, not int"):
        kv.pull("a", out=5)
    with pytest.raises(sl.DTypeMismatch, match="^pull_rows: key rows: `out` is of bool"):
        kv.pull_rows("rows", [1], out=np.ones((1, 2), bool))
    assert (good == 1).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64"])
def test_ids_are_of_any_dtype_that_has_whole_numbers(kv: sl.kvstore.KVStore, dtype: str) -> None:
    ids = np.array([[3, 1], [3, 0]]).astype(dtype)
    assert kv.row_sparse_pull("rows", row_ids=ids).indices.tolist() == [0, 1, 3]
    assert kv.pull_rows("rows", ids).shape == (4, 2)


@pytest.mark.parametrize(
    ("ids", "match"),
    [
        (np.array([0.5]), "these are not whole"),
        (np.array([np.nan]), "these are not whole"),
        (np.array([np.inf]), "these are not whole"),
        (np.array([1e300]), "these are not whole"),
        (np.array([True]), "not bool"),
        (np.array([1], ml_dtypes.bfloat16), "not bfloat16"),
        ("1", "not str"),
        ([2**70], "not object"),
        (np.array([2**64 - 1], np.uint64), "18446744073709551615 does not fit into int64"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_ids_that_are_none_say_why_and_for_which_key(kv: sl.kvstore.KVStore, ids: Any, match: str) -> None:
    with pytest.raises(sl.ShapeMismatch, match=f"^row_sparse_pull: key rows: row_ids.*{match}"):
        kv.row_sparse_pull("rows", row_ids=ids)
    with pytest.raises(sl.ShapeMismatch, match=f"^pull_rows: key rows: row_ids.*{match}"):
        kv.pull_rows("rows", ids)


@pytest.mark.parametrize(("shape", "dtype"), [((5, 2), "float32"), (SHAPE, "float64")])
def test_rows_that_come_later_are_not_put_into_an_array_of_another_kind(
    kv: sl.kvstore.KVStore, shape: tuple[int, int], dtype: str
) -> None:
    out = sl.RowSparse.zeros(shape, dtype)
    coming = kv.row_sparse_pull("rows", out=out, row_ids=[1], wait=False)
    with pytest.raises(sl.ShapeMismatch, match=r"^row_sparse_pull: the value is float32 of shape \[4, 2\], `out` is not"):
        coming.wait()
    assert len(out.indices) == 0
