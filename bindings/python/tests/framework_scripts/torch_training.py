"""Parameters given to everybody, gradients that travel, and what is refused."""

import copy

import syncline as sl
import torch
from syncline import torch as slt
from syncline.torch import _optimizer
from torch import nn

sl.init()
W, me = sl.num_workers(), sl.worker_id()
torch.set_num_threads(1)


def alike(*tensors):
    everybody = sl.tree().all_gather([tensor.detach().float().numpy().tobytes() for tensor in tensors])
    return all(each == everybody[0] for each in everybody)


# Everybody gets the root's tensors, of every kind.
torch.manual_seed(me)
root = W - 1
state = {
    "f32": torch.randn(3, 4),
    "f16": torch.randn(5).half(),
    "bf16": torch.randn(5).bfloat16(),
    "i64": torch.tensor(me),
    "bool": torch.tensor([me % 2 == 0, True]),
    "turned": torch.randn(4, 3).t(),
    "complex": torch.randn(2, dtype=torch.complex64),
    "none": torch.empty(0),
    "words": "are left alone",
}
slt.broadcast_parameters(state, root=root)
torch.manual_seed(root)
wanted = [torch.randn(3, 4), torch.randn(5).half(), torch.randn(5).bfloat16(), torch.tensor(root)]
assert all((a == b).all() for a, b in zip(state.values(), wanted)), state
assert alike(state["turned"], torch.view_as_real(state["complex"]), state["bool"])
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
slt.broadcast_parameters(net)
slt.broadcast_parameters(net.named_parameters())
slt.broadcast_parameters(list(net.parameters()))
assert alike(*net.state_dict().values())
for wrong in (lambda: slt.broadcast_parameters(net, root=W), lambda: slt.broadcast_parameters(5)):
    try:
        wrong()
    except ValueError:
        pass
    else:
        raise AssertionError("nonsense was taken")

# Means and sums, in place; half types too.
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    one, two = torch.full((3,), float(me), dtype=dtype), torch.full((2, 2), float(me), dtype=dtype).t()
    slt.all_reduce([one, two])
    assert (one == (W - 1) / 2).all() and (two == (W - 1) / 2).all(), (dtype, one, two)
count = torch.tensor([1])
assert slt.all_reduce(count, "sum") is count and count.item() == W
assert slt.device().type == ("cuda" if torch.cuda.is_available() else "cpu")


# A step with everybody's gradients is the step on everybody's samples.
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.idle = nn.Linear(6, 300), nn.Linear(300, 3), nn.Linear(2, 2)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


def trained(samples, distributed, passes=1, closure=False, optimizer=torch.optim.SGD, **options):
    torch.manual_seed(5 + (me if distributed else 0))
    net = Net()
    if distributed:
        slt.broadcast_parameters(net)
    made = optimizer(net.parameters(), lr=0.05, **options)
    if distributed:
        same = slt.DistributedOptimizer(made, net.named_parameters(), backward_passes_per_step=passes)
        assert same is made and isinstance(made, optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(made, 3, 0.5)
    for x, y in samples:
        parts = list(zip(x.chunk(passes), y.chunk(passes)))
        if closure:

            def evaluate():
                made.zero_grad()
                loss = nn.functional.mse_loss(net(x), y)
                loss.backward()
                return loss

            made.step(evaluate)
        else:
            made.zero_grad()
            for part, target in parts:
                (nn.functional.mse_loss(net(part), target) / len(parts)).backward()
            if distributed and hasattr(made, "synchronize"):
                made.synchronize()
            made.step()
        scheduler.step()
    return net, made


torch.manual_seed(99)
x, y = torch.randn(10, W, 8, 6), torch.randn(10, W, 8, 3)
everything = [(a.reshape(W * 8, 6), b.reshape(W * 8, 3)) for a, b in zip(x, y)]
mine = [(a[me], b[me]) for a, b in zip(x, y)]
torch.manual_seed(5)
everywhere = [{}, {"momentum": 0.9}, {"passes": 4}, {"closure": True}, {"optimizer": torch.optim.Adam}]
for bucket_bytes, options in [(size, options) for size in (_optimizer.BUCKET_BYTES, 256) for options in everywhere]:
    _optimizer.BUCKET_BYTES = bucket_bytes  # all parameters in one, and each in its own
    alone, _ = trained(everything, False, **{**options, "passes": 1})
    together, made = trained(mine, True, **options)
    assert alike(*together.state_dict().values()), options
    for a, b in zip(alone.one.parameters(), together.one.parameters()):
        torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)
    copy.deepcopy(made.state_dict())

# Buckets are on their way before the backward pass has come to its end.
layers = nn.Sequential(nn.Linear(6, 300), nn.ReLU(), nn.Linear(300, 3))
slt.broadcast_parameters(layers)
made = slt.DistributedOptimizer(torch.optim.SGD(layers.parameters(), lr=0.1))
underway = []
layers[0].weight.register_hook(lambda _: underway.append([b.started is not None for b in made._syncline._buckets]))
for _ in range(3):
    made.zero_grad()
    layers(torch.randn(4, 6)).sum().backward()
    made.step()
if W > 1:
    assert len(underway) == 3 and all(started[0] and not started[-1] for started in underway), underway
assert alike(*layers.state_dict().values())

# Horovod's way to clip: the gradients come first, the step then combines nothing more, and the one after it does again.
def clipped(samples, distributed):
    torch.manual_seed(5)
    net = Net()
    made = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    if distributed:
        made = slt.DistributedOptimizer(made, net.named_parameters())
    for x, y in samples:
        made.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        if distributed:
            made.synchronize()
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        if distributed:
            with made.skip_synchronize():
                made.step()
        else:
            made.step()
    return net


together, alone = clipped(mine, True), clipped(everything, False)
assert alike(*together.state_dict().values())
for a, b in zip(alone.one.parameters(), together.one.parameters()):
    torch.testing.assert_close(a, b, rtol=2e-4, atol=2e-5)
line = nn.Linear(2, 1, bias=False)
slt.broadcast_parameters(line)
start = line.weight.detach().clone()
made = slt.DistributedOptimizer(torch.optim.SGD(line.parameters(), lr=1.0))
line(torch.full((1, 2), me + 1.0)).sum().backward()
made.synchronize()
assert (line.weight.grad == (W + 1) / 2).all()  # everybody's
with torch.no_grad():
    line.weight.grad.fill_(float(me))
with made.skip_synchronize():
    made.step()
assert (line.weight == start - me).all()  # each its own: nothing was combined again
made.zero_grad()
line(torch.full((1, 2), me + 1.0)).sum().backward()
try:
    with made.skip_synchronize():
        made.step()
except ValueError as error:
    assert "synchronize() first" in str(error), error
else:
    assert W == 1, "a step without the gradients that are on their way"
made.step()
if W > 1:
    assert torch.allclose(line.weight, start - me - (W + 1) / 2)  # combined again, also after what was refused

# What cannot work says so.
net = Net()
made = slt.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), net.named_parameters())
for wrong in (
    lambda: slt.DistributedOptimizer(made),
    lambda: slt.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), op="max"),
    lambda: slt.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), backward_passes_per_step=0),
):
    try:
        wrong()
    except ValueError:
        pass
    else:
        raise AssertionError("nonsense was taken")
if W > 1:
    for parameter in net.idle.parameters():
        parameter.requires_grad_(False)
    net(torch.ones(2, 6)).sum().backward()
    made.step()
    frozen = slt.DistributedOptimizer(torch.optim.SGD(net.two.parameters(), lr=0.1), net.two.named_parameters())
    net.two(torch.ones(2, 300)).sum().backward()
    try:
        net.two(torch.ones(2, 300)).sum().backward()
    except (sl.SynclineError, RuntimeError) as error:
        assert "again before step" in str(error), error
    else:
        raise AssertionError("a second pass was taken")
    frozen.step()

# A table's manager: everybody's changes are added up, half types included.
for dtype in (torch.float32, torch.bfloat16, torch.float64):
    net = nn.Linear(3, 2).to(dtype)
    manager = slt.ParamManager(net)
    assert alike(*net.parameters())
    first = [each.detach().clone() for each in net.parameters()]
    sl.barrier()
    with torch.no_grad():
        for each in net.parameters():
            each += 1
    manager.sync()
    sl.barrier()
    manager.sync()
    for before, after in zip(first, net.parameters()):
        torch.testing.assert_close(after.detach().double(), before.double() + W, rtol=2e-2, atol=2e-2)
    assert alike(*net.parameters())
    sl.barrier()
print("all is well")
