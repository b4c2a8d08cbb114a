"""The glue to frameworks, on the frameworks themselves, as the ranks of jobs of every size.

Each script in ``framework_scripts`` checks one framework and says "all is well" on every worker.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Stage, environment
from frameworks import JOBS, LAUNCHERS, SCRIPTS, check, python_with, run_file, settings
from multiverso._theano_flags import translated
from test_netns import Hosts, hosts

__all__ = ["hosts"]  # a fixture, found by its name

jobs = pytest.mark.parametrize(("launcher", "n"), JOBS)
few = pytest.mark.parametrize(("launcher", "n"), [("syncline", 2), ("mpirun", 4)])


@jobs
def test_data_bars_and_parameters_need_no_framework(stage: Stage, launcher: str, n: int) -> None:
    check(stage, "data_and_managers.py", "numpy", launcher=launcher, n=n)


@jobs
def test_theanos_shared_variables_add_up(stage: Stage, launcher: str, n: int) -> None:
    check(stage, "shared_variables.py", "theano", launcher=launcher, n=n)


@jobs
def test_pytensors_shared_variables_add_up(stage: Stage, launcher: str, n: int) -> None:
    check(stage, "shared_variables.py", "pytensor", launcher=launcher, n=n)


@few
def test_lasagnes_networks_are_managed(stage: Stage, launcher: str, n: int) -> None:
    check(stage, "lasagne_managers.py", "lasagne", launcher=launcher, n=n)


@few
def test_the_keras_of_old_calls_back(stage: Stage, launcher: str, n: int) -> None:
    ended = check(
        stage, "keras_callbacks.py", "keras", "theano", launcher=launcher, n=n, env={"KERAS_BACKEND": "theano"}
    )
    assert ended.out.count("Epoch 6/6") == 1, ended  # one worker prints


@few
def test_keras_calls_back(stage: Stage, launcher: str, n: int) -> None:
    ended = check(stage, "keras_callbacks.py", "keras", "jax", launcher=launcher, n=n)
    assert ended.out.count("Epoch 6/6") == 1, ended


@few
def test_keras_calls_back_on_torch(stage: Stage, launcher: str, n: int) -> None:
    ended = check(stage, "keras_callbacks.py", "keras", "torch", launcher=launcher, n=n, env={"KERAS_BACKEND": "torch"})
    assert ended.out.count("Epoch 6/6") == 1, ended


@jobs
def test_torch_trains(stage: Stage, launcher: str, n: int) -> None:
    check(stage, "torch_training.py", "torch", launcher=launcher, n=n)


@jobs
def test_torch_trains_models_that_do_not_use_all_of_themselves(stage: Stage, launcher: str, n: int) -> None:
    """Unused and unfrozen layers, groups added later, sparse embeddings: as in one process, and the same on all workers."""
    check(stage, "torch_uncommon.py", "torch", launcher=launcher, n=n)


@jobs
def test_torch_distributed_has_a_backend(stage: Stage, launcher: str, n: int) -> None:
    check(stage, "torch_backend.py", "torch", launcher=launcher, n=n)


@jobs
def test_jax_reduces_trees(stage: Stage, launcher: str, n: int) -> None:
    check(stage, "jax_checks.py", "jax", launcher=launcher, n=n)


@pytest.mark.parametrize("n", [2, 4])
def test_scikit_learns_models_are_managed(stage: Stage, n: int) -> None:
    check(stage, "scikit.py", "sklearn", launcher="syncline", n=n)


def test_a_killed_rank_is_named_by_the_backend_too(stage: Stage) -> None:
    """DistributedDataParallel hears of it through a future, and says who it was."""
    ended = subprocess.run(
        [*LAUNCHERS["syncline"](3), python_with("torch"), str(SCRIPTS / "torch_killed.py")],
        env=environment(settings(stage.folder)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 128 + signal.SIGKILL, ended
    for survivor in (0, 2):
        assert f"rank {survivor} heard: " in ended.stdout, ended
    assert ended.stdout.count("rank 1 ") >= 2, ended


def test_the_variables_of_torchrun_are_enough(stage: Stage) -> None:
    """No job of Syncline's at all: the processes meet where PyTorch lets them."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    python = python_with("torch")
    told = {**settings(stage.folder), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    code = """
        import syncline.torch
        import torch
        import torch.distributed as dist
        dist.init_process_group("syncline")
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1, bias=False))
        net(torch.full((1, 3), dist.get_rank() + 1.0)).sum().backward()
        print(net.module.weight.grad.tolist())
        dist.destroy_process_group()
        """
    ranks = [stage.start(code, env={**told, "RANK": str(rank)}, python=python) for rank in range(2)]
    for rank in ranks:
        ended = rank.end(60)
        assert (ended.status, ended.out.strip()) == (0, "[[1.5, 1.5, 1.5]]"), ended


def test_the_backend_spans_hosts(hosts: Hosts, stage: Stage) -> None:
    """Three ranks on two hosts, a group of two that are on different ones, and no port that asks for no token."""
    python = python_with("torch")
    code = """
        import syncline.torch
        import torch
        import torch.distributed as dist

        def refused(*given, **options):
            raise AssertionError("PyTorch's own store would listen without a token")

        dist.TCPStore = refused
        dist.init_process_group("syncline")
        me = dist.get_rank()
        store = dist.PrefixStore("test", dist.distributed_c10d._get_default_store())     # C++, which asks ours
        store.set(f"k{me}", str(me))
        assert [store.get(f"k{i}") for i in range(3)] == [b"0", b"1", b"2"]
        store.add("sum", me + 1)
        dist.barrier()
        assert store.add("sum", 0) == 6
        other = torch.zeros(2)
        if me == 0:
            dist.send(torch.full((2,), 7.0), 2)
        elif me == 2:
            dist.recv(other, 0)
            assert other.tolist() == [7.0, 7.0]
        tensor = torch.full((1000,), me + 1.0)
        dist.all_reduce(tensor)
        pair = dist.new_group([0, 2])
        mine = torch.full((3,), me + 1.0)
        if me != 1:
            dist.all_reduce(mine, group=pair)
        dist.barrier()
        print(tensor[0].item(), mine.tolist())
        """
    ranks = hosts.start(stage, [1, 1, 2], code, python=python)
    for rank, said in enumerate(["6.0 [4.0, 4.0, 4.0]", "6.0 [2.0, 2.0, 2.0]", "6.0 [4.0, 4.0, 4.0]"]):
        ended = ranks[rank].end(90)
        assert (ended.status, ended.out.strip()) == (0, said), ended


@pytest.mark.parametrize(
    ("module", "advice"),
    [
        ("torch", "python3-torch"),
        ("keras", "pip install keras"),
        ("jax", "pip install jax"),
        ("theano", "pip install pytensor"),
    ],
)
def test_a_missing_framework_says_what_to_install(stage: Stage, module: str, advice: str) -> None:
    ended = stage.run(
        f"""
        import sys
        for name in ("torch", "keras", "jax", "theano", "pytensor"):
            sys.modules[name] = None       # as if it were not installed
        import importlib
        import syncline as sl
        for use, kind in ((lambda: sl.{module}, AttributeError), (lambda: importlib.import_module("syncline.{module}"), ImportError)):
            try:
                use()
            except kind as error:
                print(error)
        assert not hasattr(sl, "{module}")
        """
    )
    assert ended.status == 0, ended
    assert ended.out.count(f"syncline.{module} needs {module}") == 2, ended
    assert ended.out.count(advice) == 2, ended


def test_help_and_completion_work_where_no_framework_is_installed(stage: Stage) -> None:
    ended = stage.run(
        """
        import sys
        for name in ("torch", "keras", "jax", "theano", "pytensor"):
            sys.modules[name] = None
        import inspect, pydoc, rlcompleter
        import syncline as sl
        assert "ArrayTable" in pydoc.render_doc(sl)
        assert "shutdown" in dict(inspect.getmembers(sl))
        assert rlcompleter.Completer({"sl": sl}).complete("sl.tor", 0) == "sl.torch"
        """
    )
    assert ended.status == 0, ended


def test_the_glue_is_found_by_name_and_loaded_on_demand(stage: Stage) -> None:
    ended = stage.run(
        """
        import sys
        import syncline as sl
        glue = {"torch", "keras", "jax", "theano", "sklearn", "data", "progress", "parameters"}
        assert glue <= set(dir(sl))
        assert not glue & {name.partition(".")[2] for name in sys.modules if name.startswith("syncline.")}
        assert sl.data.shard(3) is not None
        try:
            sl.tensorflow
        except AttributeError as error:
            print(error)
        """
    )
    assert ended.status == 0, ended
    assert "no attribute 'tensorflow'" in ended.out, ended


def test_the_lease_of_a_killed_worker_goes_to_another(stage: Stage) -> None:
    ended = subprocess.run(
        [*LAUNCHERS["syncline"](3), sys.executable, str(SCRIPTS / "lease_of_the_dead.py")],
        env=environment({"SYNCLINE_ON_PEER_LOSS": "continue"}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    seen = sorted(
        int(word) for line in ended.stdout.splitlines() if "saw" in line for word in line.split("saw")[1].split()
    )
    assert seen == list(range(60)), ended


def test_leases_balance_hosts_too(hosts: Hosts, stage: Stage) -> None:
    """Worker 0, alone on its host, holds on to its first piece until the others have taken all the rest of its part."""
    code = """
        import time
        import numpy as np
        import syncline as sl
        sl.init()
        me = sl.worker_id()
        shard = sl.data.shard(90, leases=True, lease=3, shuffle=True)
        through = sl.ArrayTable(1, dtype="int64")
        for epoch in range(2):
            mine = []
            for sample in shard:
                mine.append(sample)
                while me == 0 and through.get()[0] < 2 * (epoch + 1):
                    time.sleep(0.001)
            if me > 0:
                through.add(np.ones(1, np.int64))
            everybody = sl.tree().all_gather(mine)
            assert sorted(sum(everybody, [])) == list(range(90)), everybody
            assert len(everybody[0]) == 3, everybody
        print("done")
        """
    for rank in hosts.start(stage, [1, 2, 2], code):
        ended = rank.end(60)
        assert (ended.status, ended.out.strip()) == (0, "done"), ended


SEEDS = Path(__file__).parent / "multiverso_scripts"


@pytest.mark.parametrize("launcher", ["syncline", "mpirun"])
@pytest.mark.parametrize(
    "script", ["theano_usage.py", "lasagne_usage.py", "lasagne_oldest.py", "keras_usage.py"]
)
def test_the_manuals_blocks_run_as_they_stand(stage: Stage, script: str, launcher: str) -> None:
    env = {"KERAS_BACKEND": "theano", "PYTHONPATH": os.pathsep.join([str(SEEDS), str(SCRIPTS)])}
    ended = run_file(stage, SEEDS / script, "theano", "lasagne", launcher=launcher, n=4, env=env)
    assert ended.out.count("the block has run") == 4, ended


@pytest.mark.parametrize("launcher", ["syncline", "mpirun"])
@pytest.mark.parametrize("script", ["gpus.py", "theano_usage.py"])
def test_nobody_has_to_set_theanos_flags(stage: Stage, script: str, launcher: str) -> None:
    """The block on GPUs sets them itself, in words that Theano 1.0 refuses; and its default for BLAS is a crash."""
    own = stage.folder / "theanorc"  # what only makes the test fast
    own.write_text(f"[global]\ncxx =\nbase_compiledir = {stage.folder}/theano\n")
    ended = run_file(
        stage, SEEDS / script, "theano", launcher=launcher, env={"THEANORC": str(own)}, without=("THEANO_FLAGS",)
    )
    assert ended.out.count("the block has run") == 4, ended
    assert "ERROR" not in ended.err, ended


@pytest.mark.parametrize(
    ("flags", "with_gpus", "without"),
    [
        ("floatX=float32,device=gpu3,lib.cnmem=1", "floatX=float32,device=cuda3,gpuarray.preallocate=1", "floatX=float32,device=cpu"),
        ("device=gpu", "device=cuda", "device=cpu"),
        ("device=cuda1,floatX=float16", "device=cuda1,floatX=float16", "device=cuda1,floatX=float16"),
        ("init_gpu_device=gpu0, mode=FAST_RUN", "init_gpu_device=cuda0,mode=FAST_RUN", "mode=FAST_RUN"),
        ("blas.ldflags=,cxx=", "blas.ldflags=,cxx=", "blas.ldflags=,cxx="),
        ("", "", ""),
    ],
)  # fmt: skip
def test_theanos_old_words_for_gpus_are_translated(flags: str, with_gpus: str, without: str) -> None:
    assert translated(flags, pygpu=True) == with_gpus
    assert translated(flags, pygpu=False) == without
