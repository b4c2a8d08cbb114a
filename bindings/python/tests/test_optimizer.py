"""Optimizers and schedules as plain data, and arrays of which only some rows are there."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from typing import Any

import numpy as np
import pytest
import syncline as sl
from dlpack import Tensor

NAMES = [
    *("sgd", "nag", "signum", "ftml", "dcasgd", "sgld", "adam", "adamw", "adagrad", "rmsprop", "adadelta", "ftrl"),
    *("adamax", "nadam", "lamb", "lars", "test"),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_is_made_by_its_name_and_by_its_class(name: str) -> None:
    made = sl.optimizer.create(name.upper(), wd=0.1)
    assert made.name == name
    assert made.wd == 0.1
    assert type(made).__name__.lower() == name
    assert type(made)(wd=0.1) == made
    assert sl.optimizer.create(name) != made


@pytest.mark.parametrize("name", NAMES)
def test_it_survives_every_way_of_being_written_down(name: str) -> None:
    schedule = sl.lr_scheduler.CosineScheduler(100, base_lr=0.5, warmup_steps=3)
    made = sl.optimizer.create(name, lr_scheduler=schedule, lr_mult={3: 0.5, "fc_bias": 2.0}, clip_gradient=1.0)
    plain = json.loads(json.dumps(made.to_dict()))
    assert sl.optimizer.from_dict(plain) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert copy.deepcopy(made) == made
    assert made.lr_mult == {3: 0.5, "fc_bias": 2.0}
    assert made.lr_scheduler == schedule
    assert type(made).__name__ in repr(made)


def test_defaults_are_those_of_mxnet() -> None:
    rates = {name: sl.optimizer.create(name).learning_rate for name in NAMES}
    others = {"adam": 0.001, "adamw": 0.001, "rmsprop": 0.001, "nadam": 0.001, "lamb": 0.001, "adamax": 0.002, "ftrl": 0.1}
    assert rates == {name: others.get(name, 0.01) for name in NAMES}
    assert repr(sl.optimizer.SGD()) == "SGD()"
    assert repr(sl.optimizer.SGD(learning_rate=0.5, momentum=0.9)) == "SGD(momentum=0.9, learning_rate=0.5)"


@pytest.mark.parametrize("name", NAMES)
def test_signatures_tell_options_and_their_defaults(name: str) -> None:
    made = sl.optimizer.create(name)
    signature = inspect.signature(type(made))
    told = {option: parameter.default for option, parameter in signature.parameters.items()}
    assert told.pop("learning_rate") is None
    assert told.pop("param_idx2name") is None
    assert told == {option: getattr(made, option) for option in told}
    assert set(made.to_dict()) - {"name", "learning_rate"} == set(told)
    assert {parameter.kind for parameter in signature.parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert type(made).__doc__


def test_options_can_be_changed_and_are_checked() -> None:
    sgd = sl.optimizer.SGD(learning_rate=0.1)
    sgd.set_learning_rate(0.2)
    assert sgd.learning_rate == 0.2
    sgd.set_learning_rate(float(np.float32(0.25)))
    sgd.wd = np.float32(0.5)  # type: ignore[assignment]  # a number like any other
    assert sgd.wd == 0.5
    sgd.rescale_grad = 1 / 4
    assert (sgd.learning_rate, sgd.rescale_grad) == (0.25, 0.25)
    before = sgd.to_dict()
    for option, value in {"momentum": float("nan"), "wd": "much", "rescale_grad": float("inf")}.items():
        with pytest.raises(sl.ConfigurationError, match=option):
            setattr(sgd, option, value)
    with pytest.raises(AttributeError, match="momentun"):
        sgd.momentun = 0.9
    with pytest.raises(AttributeError, match="momentun"):
        _ = sgd.momentun
    assert sgd.to_dict() == before


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(sl.ConfigurationError, match="no optimizer is called 'adem'; there are sgd"):
        sl.optimizer.create("adem")
    with pytest.raises(sl.ConfigurationError, match="sgd has no option \"beta\"; it has momentum"):
        sl.optimizer.create("sgd", beta=1)
    with pytest.raises(TypeError):
        sl.optimizer.create(3)  # type: ignore[arg-type]
    with pytest.raises(sl.ConfigurationError, match="beta"):
        sl.optimizer.SGD(beta=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        sl.optimizer.Optimizer()
    with pytest.raises(TypeError):
        hash(sl.optimizer.SGD())


def test_multipliers_are_by_key_or_by_the_name_behind_it() -> None:
    made = sl.optimizer.SGD(wd=0.1, param_idx2name={0: "fc_weight", 1: "fc_bias", 2: "bn_gamma", 3: "bn_beta"})
    assert made.wd_mult == {1: 0.0, 3: 0.0}
    made.set_wd_mult({"fc_bias": 1.0, "other": 0.5})
    assert made.wd_mult == {1: 1.0, 3: 0.0, "other": 0.5}
    made.set_lr_mult({"fc_weight": 0.1, 7: 3.0})
    assert made.lr_mult == {0: 0.1, 7: 3.0}


def test_a_formula_is_checked_where_it_is_written() -> None:
    made = sl.optimizer.Custom("m = beta*m + g; w -= lr * (m + wd*w)", params={"beta": 0.9}, learning_rate=0.5)
    assert made.params == {"beta": 0.9}
    assert made == sl.optimizer.create("custom", update=made.update, params={"beta": 0.9}, learning_rate=0.5)
    assert sl.optimizer.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    with pytest.raises(sl.ConfigurationError, match="nothing is called `gradient`"):
        sl.optimizer.Custom("w -= lr * gradient")
    with pytest.raises(sl.ConfigurationError, match="__import__"):
        sl.optimizer.Custom("w = __import__('os')")


def test_schedules_are_functions_of_the_number_of_updates() -> None:
    halves = sl.lr_scheduler.FactorScheduler(step=10, factor=0.5, base_lr=0.8, stop_factor_lr=0.15)
    assert [halves(n) for n in (1, 10, 11, 21, 999)] == [0.8, 0.8, 0.4, 0.2, 0.15]
    steps = sl.lr_scheduler.MultiFactorScheduler([2, 4], factor=0.5, base_lr=1.0, warmup_steps=1, warmup_mode="constant")
    assert [steps(n) for n in range(6)] == [0.0, 1.0, 1.0, 0.5, 0.5, 0.25]
    assert sl.lr_scheduler.PolyScheduler(10, base_lr=1.0, pwr=1.0)(5) == 0.5
    cosine = sl.lr_scheduler.CosineScheduler(max_update=10, base_lr=1.0, final_lr=0.5)
    assert (cosine(0), cosine(10), cosine(99)) == (1.0, 0.5, 0.5)
    for schedule in (halves, steps, cosine):
        assert sl.lr_scheduler.from_dict(json.loads(json.dumps(schedule.to_dict()))) == schedule
        assert eval(repr(schedule), vars(sl.lr_scheduler)) == schedule


def test_a_schedule_keeps_its_rate_unless_one_is_given() -> None:
    schedule = sl.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=0.8)
    adam = sl.optimizer.Adam(lr_scheduler=schedule)
    assert (adam.rate(1), adam.rate(2)) == (0.8, 0.4)
    assert sl.optimizer.Adam(lr_scheduler=schedule, learning_rate=0.1).rate(2) == 0.05
    with pytest.raises(sl.ConfigurationError, match="schedule"):
        adam.set_learning_rate(0.1)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("FactorScheduler", {"step": 0}),
        ("FactorScheduler", {"step": 2, "factor": 1.5}),
        ("MultiFactorScheduler", {"step": [3, 2]}),
        ("MultiFactorScheduler", {"step": []}),
        ("PolyScheduler", {"max_update": 0}),
        ("CosineScheduler", {"max_update": 5, "warmup_mode": "sudden"}),
        ("CosineScheduler", {"max_update": 5, "warmup_begin_lr": 1.0}),
        ("CosineScheduler", {"max_update": -5}),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(kind: str, settings: dict[str, Any]) -> None:
    with pytest.raises(sl.ConfigurationError):
        getattr(sl.lr_scheduler, kind)(**settings)


def test_rows_are_kept_sorted_and_once() -> None:
    rows = sl.RowSparse([4, 1, 4], [[1, 2], [3, 4], [10, 20]], (6, 2))
    assert rows.indices.tolist() == [1, 4]
    assert rows.indices.dtype == np.int64
    assert rows.values.tolist() == [[3, 4], [11, 22]]
    assert (rows.shape, str(rows.dtype)) == ((6, 2), "float32")
    dense = rows.to_dense()
    assert dense.tolist() == [[0, 0], [3, 4], [0, 0], [0, 0], [11, 22], [0, 0]]
    assert sl.RowSparse.from_dense(dense) == rows
    assert "2 rows of (6, 2)" in repr(rows)


def test_rows_are_copied_and_may_have_any_shape_and_dtype() -> None:
    values = np.arange(12, dtype=np.float64).reshape(2, 3, 2)
    rows = sl.RowSparse(np.array([0, 2], np.uint8), values, (4, 3, 2))
    values[:] = 0
    assert rows.values.sum() == 66
    assert rows.dtype == np.float64
    line = sl.RowSparse([1], Tensor(np.array([5], np.int32)), (3,))
    assert (line.to_dense().tolist(), str(line.dtype)) == ([0, 5, 0], "int32")
    empty = sl.RowSparse.zeros((3, 2), "float16")
    assert (len(empty.indices), empty.values.shape, str(empty.dtype)) == (0, (0, 2), "float16")
    assert empty.to_dense().tolist() == [[0, 0]] * 3
    assert sl.RowSparse.from_dense(np.zeros((0, 2))).shape == (0, 2)
    other = rows.copy()
    other.values[0] = 1
    assert other != rows


@pytest.mark.parametrize(
    ("indices", "values", "shape", "error"),
    [
        ([3], [[1, 2]], (3, 2), sl.UnknownKey),
        ([-1], [[1, 2]], (3, 2), sl.UnknownKey),
        ([0], [[1, 2, 3]], (3, 2), sl.ShapeMismatch),
        ([0, 1], [[1, 2]], (3, 2), sl.ShapeMismatch),
        ([0.5], [[1, 2]], (3, 2), sl.DTypeMismatch),
        ([0], np.ones((1, 2), complex), (3, 2), sl.DTypeMismatch),
        ([0], [[1, 2]], (), sl.ShapeMismatch),
    ],
)
def test_rows_that_fit_nowhere_are_refused(indices: Any, values: Any, shape: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        sl.RowSparse(indices, values, shape)
