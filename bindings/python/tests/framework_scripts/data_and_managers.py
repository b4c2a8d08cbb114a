"""Shards of data, bars, and parameters without any framework."""

import io
import time

import numpy as np
import syncline as sl

sl.init()
W, me = sl.num_workers(), sl.worker_id()
tree = sl.tree()

# Evenly: every worker the same number, no sample twice; another order each epoch, the same split everywhere.
for n in (0, 1, 7, 100, 103):
    for shuffle in (False, True):
        shard = sl.data.shard(n, shuffle=shuffle, seed=3)
        epochs = [list(shard), list(shard)]
        for epoch in epochs:
            assert len(epoch) == len(shard) == n // W
            everybody = sum(tree.all_gather(epoch), [])
            assert len(set(everybody)) == len(everybody) == n // W * W
        assert not shuffle or n < 100 or epochs[0] != epochs[1]
        kept = sum(tree.all_gather(list(sl.data.shard(n, shuffle=shuffle, remainder="keep"))), [])
        assert sorted(kept) == list(range(n))
        repeated = tree.all_gather(list(sl.data.shard(n, shuffle=shuffle, remainder="repeat")))
        assert {len(each) for each in repeated} == {-(-n // W)}
        assert set(sum(repeated, [])) == set(range(n))
assert [len(batch) for batch in sl.data.shard(10 * W, batch=4)] == [4, 4, 2]
words = [f"w{i}" for i in range(4 * W)]
assert list(sl.data.shard(words)) == words[me::W]
assert list(sl.data.shard(words, batch=3))[0] == words[me::W][:3]
assert next(iter(sl.data.shard(np.arange(12 * W), batch=3))).tolist() == [me, me + W, me + 2 * W]

# By leases: each sample once per epoch, whatever the speed. Worker 0 is as slow as can be: it takes one lease and is
# not done with it before the others have taken all the rest.
shard = sl.data.shard(400, leases=True, batch=5, lease=10, shuffle=True)
through = sl.ArrayTable(1, dtype="int64")
for epoch in range(3):
    mine = []
    for batch in shard:
        mine.extend(batch.tolist())
        while me == 0 and through.get()[0] < epoch * (W - 1) + (W - 1):
            time.sleep(0.001)
    if me > 0:
        through.add(np.ones(1, np.int64))
    everybody = tree.all_gather(mine)
    assert sorted(sum(everybody, [])) == list(range(400)), epoch
    assert W == 1 or len(everybody[0]) <= 10, [len(each) for each in everybody]
for nothing in (sl.data.shard(0, leases=True), sl.data.shard(0, leases=True, batch=2)):
    assert list(nothing) == []
one = sl.data.shard(1, leases=True)
assert sorted(sum(tree.all_gather(list(one)), [])) == [0]
for wrong in ({"batch": 0}, {"remainder": "hide"}, {"lease": 0}):
    try:
        sl.data.shard(5, **wrong)
    except ValueError as error:
        assert "shard" in str(error)
    else:
        raise AssertionError(wrong)

# One bar for the job: the others are silent, and all are counted.
out = io.StringIO()
with sl.progress.Bar(total=100 * W, unit="samples", style="lines", file=out) as bar:
    for _ in range(20):
        bar.advance(5, loss=0.5)
lines = out.getvalue().splitlines()
if me == 0:
    assert 1 <= len(lines) <= 11 and lines[-1].startswith(f"{100 * W}/{100 * W} samples"), lines
else:
    assert lines == []
assert list(sl.progress.bar(range(5), style="none")) == list(range(5))


# Any model at all: several dtypes, changed by everybody.
class Manager(sl.parameters.ParamManager):
    def get_values(self):
        return self.model

    def set_values(self, values):
        self.model = [value.copy() for value in values]


arrays = [np.full((2, 3), me, np.float32), np.full(4, me, np.float64), np.full((), me, np.int64), np.zeros((0, 2), np.float32)]
manager = Manager(arrays)
assert all(not value.any() for value in manager.model)
assert manager.shapes == [(2, 3), (4,), (), (0, 2)] and [str(each) for each in manager.dtypes] == ["float32", "float64", "int64", "float32"]
manager.model = [value + (me + 1) for value in manager.model]
manager.sync()
sl.barrier()
manager.sync()
assert all((value == W * (W + 1) / 2).all() for value in manager.model), manager.model
assert [value.dtype for value in manager.model] == [value.dtype for value in arrays]
try:
    manager.model = manager.model[:2]
    manager.sync()
except sl.ShapeMismatch as error:
    assert "had 4 parameters" in str(error)
else:
    raise AssertionError("a parameter was lost and nobody said so")
sl.barrier()
for name in ("get_values", "set_values"):
    try:
        getattr(sl.parameters.ParamManager, name)(*([manager] if name == "get_values" else [manager, []]))
    except NotImplementedError:
        pass

# The i-th worker of a host takes the i-th GPU; where there is none the variable does nothing.
import os  # noqa: E402

os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(sl.local_rank()))
assert os.environ["CUDA_VISIBLE_DEVICES"] == str(me)
print("all is well")
