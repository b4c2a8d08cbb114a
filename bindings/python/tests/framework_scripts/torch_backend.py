"""The backend ``syncline`` of torch.distributed: every collective, groups, and DistributedDataParallel beside Gloo."""

import syncline as sl
import syncline.torch  # makes the backend known
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("syncline")
W, me = dist.get_world_size(), dist.get_rank()
assert dist.get_backend().lower() == "syncline"
assert (W, me) == (sl.num_workers(), sl.worker_id())
total = W * (W + 1) // 2

# Reductions of every dtype and operation, at once or while something else goes on.
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
    for op, expected in (
        (dist.ReduceOp.SUM, total),
        (dist.ReduceOp.MIN, 1),
        (dist.ReduceOp.MAX, W),
        (dist.ReduceOp.PRODUCT, {1: 1, 2: 2, 4: 24}[W]),
    ):
        tensor = torch.full((7, 3), me + 1, dtype=dtype)
        dist.all_reduce(tensor, op)
        assert (tensor == expected).all(), (dtype, op, tensor)
works = [(torch.full((1000 + i,), float(me + i)), i) for i in range(20)]
works = [(tensor, i, dist.all_reduce(tensor, async_op=True)) for tensor, i in works]
for tensor, i, work in reversed(works):
    work.wait()
    assert work.is_completed() and (tensor == total - W + i * W).all(), i
turned = torch.full((3, 4), float(me)).t()
dist.all_reduce(turned)
assert (turned == total - W).all()
imaginary = torch.full((3,), complex(me, 1))
dist.all_reduce(imaginary)
assert (imaginary == complex(total - W, W)).all()
truth = torch.tensor([me == 0, True])
dist.all_reduce(truth, dist.ReduceOp.BAND)
assert truth.tolist() == [W == 1, True]
try:
    dist.all_reduce(torch.tensor([True]))
except (sl.SynclineError, RuntimeError) as error:
    assert "booleans" in str(error), error
else:
    raise AssertionError("truth was added up")
empty = torch.empty(0)
dist.all_reduce(empty)

# The others.
tensor = torch.full((2, 3), float(me))
dist.broadcast(tensor, W - 1)
assert (tensor == W - 1).all()
half = torch.full((5,), float(me), dtype=torch.bfloat16)
dist.broadcast(half, 0)
assert (half == 0).all()
tensor = torch.full((3,), float(me + 1))
dist.reduce(tensor, 0)
assert (tensor == (total if me == 0 else me + 1)).all()
parts = [torch.empty(2, dtype=torch.int64) for _ in range(W)]
dist.all_gather(parts, torch.tensor([me, me * me]))
assert [part.tolist() for part in parts] == [[i, i * i] for i in range(W)]
dist.gather(torch.tensor([float(me)]), [torch.empty(1) for _ in range(W)] if me == 0 else None, dst=0)
got = torch.empty(2)
dist.scatter(got, [torch.full((2,), 10.0 + i) for i in range(W)] if me == 0 else None, src=0)
assert (got == 10 + me).all()
got = torch.empty(2)
dist.reduce_scatter(got, [torch.full((2,), float(i + me)) for i in range(W)])
assert (got == me * W + total - W).all()
outputs = [torch.empty(1) for _ in range(W)]
dist.all_to_all(outputs, [torch.tensor([10.0 * me + i]) for i in range(W)])
assert [each.item() for each in outputs] == [10.0 * i + me for i in range(W)]
whole = torch.empty(W)
dist.all_to_all_single(whole, torch.arange(W, dtype=torch.float32) + 10 * me)
assert whole.tolist() == [10.0 * i + me for i in range(W)]
objects = [None] * W
dist.all_gather_object(objects, {"rank": me})
assert objects == [{"rank": i} for i in range(W)]
dist.barrier()

# From one to another: tags, both ways at once, from anybody, and arrays that do not fit.
if W >= 2:
    to, of = (me + 1) % W, (me - 1) % W
    works = [dist.isend(torch.full((300_000,), float(me)), to, tag=1), dist.isend(torch.tensor([me], dtype=torch.int64), to, tag=2)]
    number, large = torch.empty(1, dtype=torch.int64), torch.empty(300_000)
    works += [dist.irecv(number, of, tag=2), dist.irecv(large, of, tag=1)]
    for work in reversed(works):
        work.wait()
        assert work.is_completed()
    assert number.item() == of and (large == of).all()
    if me == 0:
        senders = set()
        turned = torch.zeros(2, 3).t()
        for _ in range(W - 1):
            senders.add(dist.recv(turned, tag=3))
            assert (turned == torch.arange(6).reshape(3, 2)).all(), turned
        assert senders == set(range(1, W)), senders
    else:
        dist.send(torch.arange(6).reshape(3, 2).float(), 0, tag=3)
    for dtype in (torch.bfloat16, torch.bool, torch.complex64):
        if me == 0:
            dist.send(torch.ones(3, dtype=dtype), 1)
        elif me == 1:
            got = torch.zeros(3, dtype=dtype)
            assert dist.recv(got, 0) == 0 and (got == torch.ones(3, dtype=dtype)).all()
    if me < 2:
        got = torch.zeros(4)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(4), 1 - me), dist.P2POp(dist.irecv, got, 1 - me)]):
            work.wait()
        assert (got == 1).all()
        try:
            dist.recv(torch.empty(3), 1) if me == 0 else dist.send(torch.ones(2), 0)
        except (sl.SynclineError, RuntimeError) as error:
            assert "bytes" in str(error), error
        else:
            assert me == 1, "two numbers were taken for three"
dist.barrier()

# Groups of some.
if W >= 2:
    pairs = [dist.new_group([i, i + 1]) for i in range(0, W, 2)]
    tensor = torch.full((4,), float(me))
    dist.all_reduce(tensor, group=pairs[me // 2])
    assert (tensor == 2 * (me // 2 * 2) + 1).all()


# DistributedDataParallel: the same weights as on Gloo over 50 steps.
def trained(group, hook=None, **options):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 5))
    ddp = DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.2, **options)
    if hook is not None:
        ddp.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + me)
    for _ in range(50):
        optimizer.zero_grad()
        x = torch.randn(16, 20)
        nn.functional.cross_entropy(ddp(x), x[:, :5].argmax(1)).backward()
        optimizer.step()
    return [each.detach().clone() for each in net.parameters()]


gloo = dist.new_group(backend="gloo")
ours, theirs = trained(None), trained(gloo)
for a, b in zip(ours, theirs):
    if W <= 2:
        assert (a == b).all(), (a - b).abs().max()
    else:
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
# A mean of sums and a sum of halves round alike for powers of two.
assert all((a == b).all() for a, b in zip(trained(gloo, syncline.torch.ddp_hook), ours))
for options in ({"find_unused_parameters": True}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
    assert all((a == b).all() for a, b in zip(trained(None, **options), ours)), options


# Half types: no products of matrices, for which some builds of PyTorch use instructions that not every machine has.
class Scaled(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.scale = nn.Parameter(torch.full((300,), 0.5, dtype=dtype))

    def forward(self, x):
        return x * self.scale


for dtype in (torch.float16, torch.bfloat16):
    ddp = DistributedDataParallel(Scaled(dtype))
    ddp(torch.full((300,), float(me + 1), dtype=dtype)).sum().backward()
    assert (ddp.module.scale.grad == torch.tensor(total / W, dtype=dtype)).all(), ddp.module.scale.grad
dist.barrier()
print("all is well")
dist.destroy_process_group()
