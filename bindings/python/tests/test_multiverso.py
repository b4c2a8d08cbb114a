"""The drop-in package: old scripts as they stand, and what the original got wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import multiverso as mv
import numpy as np
import pytest
import syncline as sl
from conftest import LAUNCHERS as VARIABLES
from conftest import TORCHRUN, Stage, command

SCRIPTS = Path(__file__).parent / "multiverso_scripts"

LAUNCHERS: dict[str, tuple[int, Callable[[], list[str]]]] = {
    "alone": (1, list),
    "syncline": (4, lambda: [command("syncline"), "run", "-n", "4"]),
    "openmpi": (4, lambda: [command("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "-np", "4"]),
    "mpich": (4, lambda: [command("mpirun.mpich"), "-np", "4"]),
}


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import os

    for name in list(os.environ):
        if name.startswith(VARIABLES) or name in TORCHRUN:
            monkeypatch.delenv(name)
    yield
    mv.shutdown()


def lines(stage: Stage, script: str, launcher: str) -> tuple[int, list[str]]:
    """How many workers ran the script, and all that they printed, sorted."""
    workers, under = LAUNCHERS[launcher]
    ended = stage.run((SCRIPTS / script).read_text(), under=under())
    assert ended.status == 0, ended
    return workers, sorted(re.sub(r"^\[rank \d+\] ?", "", line) for line in ended.out.splitlines())


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_usage_example_runs_as_it_stands(stage: Stage, launcher: str) -> None:
    workers, said = lines(stage, "usage.py", launcher)
    masters = ["True"] + ["False"] * (workers - 1)
    assert said == sorted([str(workers)] * workers + [str(worker) for worker in range(workers)] + masters)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_initialisation_example_gives_everybody_the_masters_model(stage: Stage, launcher: str) -> None:
    workers, said = lines(stage, "initialisation.py", launcher)
    assert said == [f"params {[float(i) for i in range(10)]}"] * workers


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_master_worker_example_prints_once(stage: Stage, launcher: str) -> None:
    workers, said = lines(stage, "master.py", launcher)
    assert said == [f"validated {[workers * (workers + 1) / 2] * 3}"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_all_workers_see_the_same_in_sync_mode(stage: Stage, launcher: str) -> None:
    workers, said = lines(stage, "synchronous.py", launcher)
    assert len(said) == 20 * workers
    assert len(set(said)) == 20
    first = [[1.0 + workers, 1.0 + 2 * workers]] * 4
    assert f"round 0 {first}" in said


def test_the_modules_are_where_they_were() -> None:
    from multiverso import api, tables, utils

    assert api.init is mv.init
    assert tables.ArrayTableHandler is mv.ArrayTableHandler
    assert issubclass(mv.MatrixTableHandler, tables.TableHandler)
    converted = utils.convert_data(np.asfortranarray([[1, 2], [3, 4]]))
    assert (converted.dtype.name, converted.flags.c_contiguous) == ("float32", True)
    for name in mv.__all__:
        assert getattr(mv, name).__doc__


def test_the_answers_of_a_process_alone() -> None:
    mv.init()
    assert (mv.workers_num(), mv.num_workers(), mv.worker_id(), mv.server_id()) == (1, 1, 0, 0)
    assert mv.is_master_worker() is True
    mv.barrier()
    mv.shutdown()
    with pytest.raises(sl.Closed):
        mv.worker_id()
    mv.init()  # a process alone may start again


def test_init_twice_is_an_error() -> None:
    mv.init()
    with pytest.raises(sl.SynclineError, match="already in a job"):
        mv.init()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-sync=true"], "sync"),
        (["--sync=True", "-logtostderr=true"], "sync"),
        (["train.py", "-", "data-set-1", "-sync=false"], "float32"),
        ([], "float32"),
        (True, "sync"),
        (False, "float32"),
    ],
)
def test_flags_are_understood_in_the_oldest_form(arguments: Any, expected: str) -> None:
    mv.init(arguments)
    table = mv.ArrayTableHandler(2)
    assert repr(table._table).endswith(f"{expected}>"), repr(table._table)


def test_flags_choose_the_updater_and_initial_values_bypass_it() -> None:
    mv.init(args=["-updater_type=sgd"])
    table = mv.ArrayTableHandler(2, [1, 2])
    assert table.get().tolist() == [1, 2]
    table.add([1, 1])
    assert table.get().tolist() == [0, 1]


def test_flags_that_mean_nothing_here_are_told(caplog: pytest.LogCaptureFixture) -> None:
    mv.init(["-ps_role=server", "-frobnicate=3"])
    assert "SYNCLINE_ROLE" in caplog.text
    assert "-frobnicate=3 is unknown" in caplog.text


def test_everything_is_float32_unless_told_otherwise() -> None:
    mv.init()
    table = mv.ArrayTableHandler(3, [1, 2, 3])
    table.add(np.array([0.5, 0.5, 0.5], np.float64))
    fetched = table.get()
    assert (fetched.dtype, fetched.tolist(), fetched.shape) == (np.float32, [1.5, 2.5, 3.5], (3,))
    for dtype in ("float64", "int32", "int64"):
        kept = mv.MatrixTableHandler(2, 2, [[1, 2], [3, 4]], dtype=dtype)
        kept.add([1, 1, 1, 1], sync=True)
        assert (kept.get().dtype, kept.get().ravel().tolist()) == (np.dtype(dtype), [2, 3, 4, 5])


def test_the_old_keyword_of_get_is_accepted() -> None:
    mv.init()
    table = mv.ArrayTableHandler(2, [1, 2])
    matrix = mv.MatrixTableHandler(2, 1, [1, 2])
    assert table.get(sync=True).tolist() == table.get(sync=False).tolist() == [1, 2]
    assert matrix.get([1], sync=True).tolist() == [[2]]
    assert matrix.get(sync=True).tolist() == [[1], [2]]


def test_a_wrong_size_is_an_assertion_error_as_ever() -> None:
    mv.init()
    table = mv.ArrayTableHandler(3)
    matrix = mv.MatrixTableHandler(2, 3)
    calls: list[Callable[[], Any]] = [
        lambda: table.add([1, 2]),
        lambda: matrix.add([1, 2]),
        lambda: matrix.add(),
        lambda: matrix.add([1] * 6, row_ids=[0]),
        lambda: mv.ArrayTableHandler(3, [1, 2]),
        lambda: mv.MatrixTableHandler(3, 1, [1, 2]),
    ]
    for call in calls:
        with pytest.raises(AssertionError) as caught:
            call()
        assert isinstance(caught.value, sl.ShapeMismatch)
    assert not table.get().any()
    assert not matrix.get().any()


@pytest.mark.parametrize("bad", [[-1], [2], [0, 99]])
def test_ids_out_of_range_raise_and_harm_nothing(bad: list[int]) -> None:
    mv.init()
    matrix = mv.MatrixTableHandler(2, 3, np.arange(6))
    with pytest.raises(sl.UnknownKey):
        matrix.get(bad)
    with pytest.raises(sl.UnknownKey):
        matrix.add(np.ones((len(bad), 3)), bad)
    assert matrix.get().ravel().tolist() == list(range(6))


def test_shapes_do_not_matter_but_layouts_mean_what_they_say() -> None:
    mv.init()
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    matrix = mv.MatrixTableHandler(2, 3, np.asfortranarray(numbers))
    matrix.add(np.asfortranarray(numbers))
    assert matrix.get().tolist() == (2 * numbers).tolist()
    assert mv.ArrayTableHandler(6, numbers).get().tolist() == list(range(6))
    assert matrix.get([1, 1, 0]).tolist() == (2 * numbers)[[1, 1, 0]].tolist()


def test_the_base_class_is_only_a_base() -> None:
    with pytest.raises(NotImplementedError):
        mv.TableHandler(3)
    with pytest.raises(NotImplementedError):
        mv.TableHandler.get(object())  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        mv.TableHandler.add(object(), [1])  # type: ignore[arg-type]
