"""What a training step of 25 million parameters costs beside Gloo, in one run, on as many processes as there are.

    syncline run -n 2 python bindings/python/benches/torch_ddp.py
    syncline run -n 1 python bindings/python/benches/torch_ddp.py       # what Syncline costs where nobody is to talk to

Every way trains a copy of the same model on the same data; the ways take turns, round by round and in the other
direction every second one, so that a busy moment of the machine hits all of them. The figure is the median of the rounds,
each as slow as its slowest process; "cpu" is the time that all threads of the slowest process computed in a step. "alone"
computes only; "DDP, nothing sent" adds what DistributedDataParallel itself costs, its copies into buckets and back, with
a hook that sends nothing: no backend can be faster. Batches are small by default; with large ones a step is computation,
and all backends look alike.

The last lines compare round by round: the median of the rounds' quotients and, in brackets, their quartiles. With one
process they are what Syncline itself costs: the backend beside DistributedDataParallel with nothing sent, the optimizer
beside the same optimizer alone; at most 1.02 is wanted. With several they are the backend beside Gloo; at most 0.80.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes are the parallelism

import syncline as sl
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def model(width: int, layers: int) -> torch.nn.Module:
    torch.manual_seed(1)
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts)


def nothing_sent(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    over: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    over.set_result(bucket.buffer())
    return over


# DistributedDataParallel compares the objects, and here annotations are words.
nothing_sent.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]})


def quotients(ones: list[float], others: list[float]) -> str:
    """The median of both, round by round, and the quartiles."""
    low, middle, high = statistics.quantiles((one / other for one, other in zip(ones, others, strict=True)), n=4)
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


def step_of(net: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--batch", type=int, default=4, help="samples of each process in a step (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--views", action="store_true", help="gradient_as_bucket_view: no copies from bucket to gradient"
    )
    parser.add_argument("--only", choices=("ddp", "all"), default="all", help="the backend, or every way (%(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sl.torch  # noqa: B018  makes the backend known
    dist.init_process_group("syncline")
    gloo = dist.new_group(backend="gloo")
    world = dist.get_world_size()
    torch.manual_seed(dist.get_rank())
    batch = torch.randn(args.batch, args.width)

    ways: dict[str, Callable[[], None]] = {}

    def way(name: str, wrap: Callable[[torch.nn.Module], torch.nn.Module], distribute: bool = False) -> None:
        net = wrap(model(args.width, args.layers))
        optimizer: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        if distribute:
            optimizer = sl.torch.DistributedOptimizer(optimizer)
        ways[name] = step_of(net, optimizer, batch)

    def ddp(net: torch.nn.Module, group: object = None, hook: object = None) -> torch.nn.Module:
        wrapped = DistributedDataParallel(net, process_group=group, gradient_as_bucket_view=args.views)
        if hook is not None:
            wrapped.register_comm_hook(None, hook)
        return wrapped

    way("alone", lambda net: net)
    way("DDP, nothing sent", lambda net: ddp(net, gloo, nothing_sent))
    way("DDP, gloo", lambda net: ddp(net, gloo))
    way("DDP, syncline", ddp)
    if args.only == "all":
        way("DDP, ddp_hook", lambda net: ddp(net, gloo, sl.torch.ddp_hook))
        way("DistributedOptimizer", lambda net: net, distribute=True)

    times: dict[str, list[float]] = {name: [] for name in ways}
    computing: dict[str, list[float]] = {name: [] for name in ways}
    for step in ways.values():
        step()
        step()
    for turn in range(args.rounds):
        for name, step in list(ways.items())[:: -1 if turn % 2 else 1]:
            dist.barrier()
            begun, computed = time.perf_counter(), time.process_time()
            step()
            times[name].append(time.perf_counter() - begun)
            computing[name].append(time.process_time() - computed)
    slowest, _ = sl.tree().all_reduce(times, "max")
    busiest, _ = sl.tree().all_reduce(computing, "max")
    if dist.get_rank() == 0:
        count = sum(each.numel() for each in model(args.width, args.layers).parameters())
        print(f"{world} processes, {count / 1e6:.1f} M parameters, batches of {args.batch}, torch {torch.__version__}")
        medians = {name: statistics.median(all_rounds) for name, all_rounds in slowest.items()}
        for name, median in medians.items():
            best, beside = min(slowest[name]), median / medians["DDP, gloo"]
            over = median / medians["alone"]
            cpu = statistics.median(busiest[name])
            shown = f"{name:22} {1e3 * median:8.1f} ms   best {1e3 * best:8.1f}   cpu {1e3 * cpu:8.1f}"
            print(f"{shown}   {beside:5.2f} x gloo   {over:5.2f} x alone")
        pairs = [("DDP, syncline", "DDP, nothing sent")] if world == 1 else [("DDP, syncline", "DDP, gloo")]
        if args.only == "all":
            pairs.append(("DistributedOptimizer", "alone" if world == 1 else "DDP, gloo"))
        for name, other in pairs:
            wall, cpu = (quotients(of[name], of[other]) for of in (slowest, busiest))
            print(f"{name} / {other}: {wall} of the time, {cpu} of the processor's")
    dist.barrier()


if __name__ == "__main__":
    main()
