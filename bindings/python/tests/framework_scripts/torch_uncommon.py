"""Models that do not use all of themselves all the time: with everybody's gradients they learn what one process would."""

import copy
import pickle

import syncline as sl
import torch
from syncline import torch as slt
from torch import nn

sl.init()
W, me = sl.num_workers(), sl.worker_id()
torch.set_num_threads(1)
torch.manual_seed(99)
x, y = torch.randn(8, W, 6, 4), torch.randn(8, W, 6, 2)
STEPS = range(len(x))


def alike(module):
    everybody = sl.tree().all_gather([each.detach().numpy().tobytes() for each in module.parameters()])
    return all(each == everybody[0] for each in everybody)


def trained(make, optimizers, loss, before_step, distributed):
    """A model after all steps, on this worker's samples with everybody's gradients, or alone on everybody's samples."""
    torch.manual_seed(5)
    model = make()
    made = optimizers(model)
    if distributed:
        made = [slt.DistributedOptimizer(each) for each in made]
    for step in STEPS:
        before_step(step, model, made)
        for each in made:
            each.zero_grad()
        losses = [loss(model, step, worker) for worker in ([me] if distributed else range(W))]
        (sum(losses) / len(losses)).backward()
        for each in made:
            each.step()
    return model


def same(what, make, optimizers, loss, before_step=lambda step, model, made: None):
    alone = trained(make, optimizers, loss, before_step, False)
    together = trained(make, optimizers, loss, before_step, True)
    assert alike(together), f"{what}: the workers' parameters differ"
    for (name, a), b in zip(alone.named_parameters(), together.parameters()):
        torch.testing.assert_close(b, a, rtol=2e-4, atol=2e-5, msg=lambda text: f"{what}, {name}: {text}")
    return together


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.idle = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(2, 2)

    def forward(self, inputs):
        return self.two(torch.relu(self.one(inputs)))


def squares(model, step, worker):
    return nn.functional.mse_loss(model(x[step, worker]), y[step, worker])


def decaying(model):
    return [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)]


# Parameters that nobody uses have no gradient, and no decay: they stay what they were.
model = same("unused parameters", Net, decaying, squares)
assert model.idle.weight.grad is None


# Those that one worker uses now and then have everybody's share of it.
class Branches(Net):
    def branch(self, inputs):
        return self.idle(self.forward(inputs))


def now_and_then(model, step, worker):
    forward = model.branch if step % 3 == 1 and worker == 0 else model
    return nn.functional.mse_loss(forward(x[step, worker]), y[step, worker])


def forgetting(step, model, made):
    for each in made:
        each.zero_grad(set_to_none=True)


same("parameters used now and then", Branches, decaying, now_and_then, forgetting)


# Layers that are unfrozen later, and parameters that are added later, take part from then on.
def frozen():
    model = Net()
    for each in model.one.parameters():
        each.requires_grad_(False)
    return model


def unfreezing(step, model, made):
    if step == 3:
        for each in model.one.parameters():
            each.requires_grad_(True)


def adding(step, model, made):
    if step == 3:
        made[0].add_param_group({"params": list(model.one.parameters()), "lr": 0.05})


same("unfrozen later", frozen, decaying, squares, unfreezing)
same("a group added later", Net, lambda model: [torch.optim.SGD(model.two.parameters(), lr=0.1)], squares, adding)


# Sparse gradients stay sparse, so that optimizers which want them work, and no table travels whole.
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.rare = nn.Embedding(20, 4, sparse=True), nn.Embedding(7, 4, sparse=True)
        self.line = nn.Linear(4, 2)


batches = torch.randint(0, 20, (len(x), W, 6))


def looked_up(model, step, worker):
    vectors = model.words(batches[step, worker])
    if step > 2 and worker == step % W:  # others have no gradient for it, or an empty one
        vectors = vectors + model.rare(batches[step, worker] % 7)
    return nn.functional.mse_loss(model.line(vectors), y[step, worker])


def for_words(sparse):
    return lambda model: [
        sparse([*model.words.parameters(), *model.rare.parameters()], lr=0.1),
        torch.optim.Adam(model.line.parameters(), lr=0.1),
    ]


for sparse in (torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad):
    model = same(f"sparse gradients, {sparse.__name__}", Words, for_words(sparse), looked_up)
    assert model.words.weight.grad.is_sparse



# A gradient may be sparse on one worker and whole on another, from the first step on or later.
def sparse_here_whole_there(model, step, worker):
    table, ids = model.weight, batches[step, worker]
    if worker == step % W:
        vectors = nn.functional.embedding(ids, table, sparse=True)
    else:
        vectors = nn.functional.one_hot(ids, 20).float() @ table
    return nn.functional.mse_loss(vectors[:, :2], y[step, worker])


def plain(model):
    return [torch.optim.SGD(model.parameters(), lr=0.1)]


same("sparse here, whole there", lambda: nn.Embedding(20, 4), plain, sparse_here_whole_there, forgetting)

# A copy has parameters of its own: it is the optimizer that it was before, and can be stored like one.
model = Net()
made = slt.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.1))
squares(model, 0, me).backward()
made.step()
for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
    assert type(twin) is torch.optim.Adam, type(twin)
    assert len(twin.state) == len(made.state) == 4
    twin.step()

# A model's own parameters go into stores and tables and are filled by them; what has no plain memory is refused by name.
line = nn.Linear(3, 2)
kv, table = sl.kvstore.create("local"), sl.ArrayTable(6)
kv.init("w", line.weight)
kv.push("w", torch.ones(2, 3))
assert kv.pull("w", out=line.weight) is line.weight and (line.weight == 1).all() and line.weight.requires_grad
table.add(line.weight)
sl.barrier()
table.get(out=line.weight)
assert (line.weight == W).all()
assert (sl.aggregate(line.weight, "max") == W).all()
try:
    kv.push("w", torch.ones(2, 3).to_sparse())
except sl.ShapeMismatch as error:
    assert str(error).startswith("push: key w: "), error
else:
    raise AssertionError("a sparse tensor passed for an array")
sl.barrier()

# Two optimizers that workers step in different orders: an error that says so, and never the gradients of the other one.
pair = [nn.Linear(2, 2), nn.Linear(2, 2)]
both = [slt.DistributedOptimizer(torch.optim.SGD(each.parameters(), lr=0.1)) for each in pair]
try:
    (both if me == 0 else both[::-1])[0].step()
except sl.ContractMismatch as error:
    assert "gradients of optimizer" in str(error), error
else:
    assert W == 1, "gradients of one optimizer were taken for those of another"
print("all is well")
