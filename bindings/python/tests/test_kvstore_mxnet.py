"""The same pushes and pulls on MXNet's own store and on ours, where MXNet is installed (``scripts/oracle/README.md``)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Stage, command, environment
from numpy.typing import NDArray

ROOT = Path(__file__).parents[3]
ORACLE = ROOT / "scripts" / "oracle" / "store.py"

DENSE: list[list[Any]] = [["init", "w", [7, 5], 1], ["init", "v", [3], 2]]
for i in range(12):
    DENSE += [["push", "w", i, i + 50], ["push", "v", i], ["pull", "w"], ["pull", "v"]]
ROWS: list[list[Any]] = [["init_rows", "e", [8, 4], 3]]
for i in range(12):
    ROWS += [["push_rows", "e", [i % 8, i % 3 + 5] if i % 8 < 5 else [2], i], ["pull_rows", "e", [7, 0, 3, 3, 6]]]
ROWS += [["pull_rows", "e", list(range(8))]]

SCENARIOS: dict[str, dict[str, Any]] = {
    "assign": {"type": "local", "optimizer": None, "steps": DENSE},
    "sgd": {"type": "device", "optimizer": ["sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}], "steps": DENSE},
    "adam": {"type": "local", "optimizer": ["adam", {"learning_rate": 0.05, "clip_gradient": 0.4}], "steps": DENSE},
    "rows, sgd": {"type": "local", "optimizer": ["sgd", {"learning_rate": 0.1, "momentum": 0.9}], "steps": ROWS},
    "rows, adam": {"type": "local", "optimizer": ["adam", {"learning_rate": 0.05}], "steps": ROWS},
    "rows, adagrad": {"type": "local", "optimizer": ["adagrad", {"learning_rate": 0.1}], "steps": ROWS},
}
JOBS: dict[str, dict[str, Any]] = {
    "sum": {"type": "dist_sync", "optimizer": None, "steps": DENSE},
    "adam": {"type": "dist_sync", "optimizer": ["adam", {"learning_rate": 0.05, "rescale_grad": 0.5}], "steps": DENSE},
    "2bit": {
        "type": "dist_sync",
        "optimizer": ["test", {"rescale_grad": 2.0}],
        "compression": {"type": "2bit", "threshold": 0.5},
        "steps": DENSE,
    },
    "rows, sgd": {"type": "dist_sync", "optimizer": ["sgd", {"learning_rate": 0.1}], "steps": ROWS},
}

OURS = """
    import json, os, sys
    import numpy as np
    import syncline as sl

    def numbers(shape, seed, rank):
        places = np.arange(int(np.prod(shape)), dtype=np.int64)
        found = (places * 7919 + seed * 104729 + rank * 31337 + 12345) % 2003 / 1001.5 - 1.0
        return found.astype("float32").reshape(shape)

    scenario = json.loads(os.environ["SCENARIO"])
    kv = sl.kvstore.create(scenario["type"])
    if scenario.get("compression"):
        kv.set_gradient_compression(scenario["compression"])
    shapes, found, chosen = {}, [], False
    for what, key, *more in scenario["steps"]:
        if what.startswith("init"):
            shapes[key] = tuple(more[0])
            value = numbers(more[0], more[1], 0)
            kv.init(key, sl.RowSparse.from_dense(value) if what == "init_rows" else value)
            continue
        if not chosen and scenario["optimizer"]:
            name, options = scenario["optimizer"]
            kv.set_optimizer(sl.optimizer.create(name, **options))
            kv.barrier()
        chosen = True
        if what == "push":
            kv.push(key, [numbers(shapes[key], seed, kv.rank) for seed in more])
        elif what == "push_rows":
            values = numbers((len(more[0]), *shapes[key][1:]), more[1], kv.rank)
            kv.push(key, sl.RowSparse(more[0], values, shapes[key]))
        elif what == "pull":
            found.append(kv.pull(key))
        elif what == "pull_rows":
            found.append(kv.row_sparse_pull(key, row_ids=more[0]).to_dense())
    text = json.dumps([[format(bits, "x") for bits in each.reshape(-1).view("<u4").tolist()] for each in found])
    with open(os.environ["ANSWER"] + str(kv.rank), "w") as answer:
        answer.write(text)
"""


@pytest.fixture(scope="module")
def mxnet() -> str:
    """A Python that has MXNet 1.9.1."""
    python = os.environ.get("SYNCLINE_ORACLE_PYTHON") or str(ROOT / ".venv-mxnet" / "bin" / "python")
    if not Path(python).exists():
        pytest.skip("MXNet 1.9.1 is not installed: no .venv-mxnet, and SYNCLINE_ORACLE_PYTHON is not set")
    return python


def numbers(file: Path) -> list[NDArray[Any]]:
    return [np.array([int(bits, 16) for bits in each], np.uint32).view(np.float32) for each in json.loads(file.read_text())]


def free_port() -> str:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return str(door.getsockname()[1])


def theirs(python: str, scenario: dict[str, Any], folder: Path, workers: int) -> list[NDArray[Any]]:
    file = folder / "scenario.json"
    file.write_text(json.dumps({"compression": None, **scenario}))
    env = environment({"ANSWER": str(folder / "theirs"), "OMP_NUM_THREADS": "1"})
    play = [python, str(ORACLE), str(file)]
    if scenario["type"] in ("local", "device"):
        subprocess.run(play, env=env, check=True, timeout=60, capture_output=True)
        return numbers(folder / "theirs0")
    cluster = {
        **env,
        "DMLC_PS_ROOT_URI": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": free_port(),
        "DMLC_NUM_SERVER": "1",
        "DMLC_NUM_WORKER": str(workers),
    }
    roles = [("scheduler", [python, "-c", "import mxnet"]), ("server", [python, "-c", "import mxnet"])]
    roles += [("worker", play)] * workers
    started = [subprocess.Popen(what, env={**cluster, "DMLC_ROLE": role}, stderr=subprocess.DEVNULL) for role, what in roles]
    try:
        for process in started:
            assert process.wait(60) == 0
    finally:
        for process in started:
            process.kill()
            process.wait()
    return numbers(folder / "theirs0")


def compare(wanted: list[NDArray[Any]], found: list[NDArray[Any]]) -> None:
    assert len(wanted) == len(found) > 0
    for step, (one, other) in enumerate(zip(wanted, found, strict=True)):
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-7, err_msg=f"pull {step}")


@pytest.mark.parametrize("name", SCENARIOS)
def test_local_stores_agree(stage: Stage, tmp_path: Path, mxnet: str, name: str) -> None:
    scenario = SCENARIOS[name]
    ended = stage.run(OURS, env={"SCENARIO": json.dumps(scenario), "ANSWER": str(tmp_path / "ours")})
    assert ended.status == 0, ended
    compare(theirs(mxnet, scenario, tmp_path, 1), numbers(tmp_path / "ours0"))


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize("name", JOBS)
def test_jobs_of_two_workers_agree(stage: Stage, tmp_path: Path, mxnet: str, name: str, servers: int) -> None:
    scenario = JOBS[name]
    more = ["--servers", str(servers)] if servers else []
    under = [command("syncline"), "run", "-n", "2", *more]
    ended = stage.run(OURS, under=under, env={"SCENARIO": json.dumps(scenario), "ANSWER": str(tmp_path / "ours")})
    assert ended.status == 0, ended
    compare(theirs(mxnet, scenario, tmp_path, 2), numbers(tmp_path / "ours0"))
    compare(numbers(tmp_path / "ours1"), numbers(tmp_path / "ours0"))


def test_the_trace_that_the_real_cluster_gave(stage: Stage, tmp_path: Path) -> None:
    """0.3 from each of two workers, in two bits: seen on the real MXNet, and compared where it is not installed too."""
    code = """
        import numpy as np
        import syncline as sl
        kv = sl.kvstore.create("dist_sync")
        kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
        kv.init("w", np.zeros(5, np.float32))
        trace = []
        for _ in range(4):
            kv.push("w", np.full(5, 0.3, np.float32))
            trace.append(kv.pull("w")[0].item())
        print("trace", trace, flush=True)
    """
    ended = stage.run(code, under=[command("syncline"), "run", "-n", "2"])
    assert ended.out.count("trace [0.0, 1.0, 0.0, 1.0]") == 2, ended
