"""Shared variables of Theano or PyTensor, with the numbers of the original's own test."""

import pickle

import multiverso as mv
import numpy
import syncline as sl

mv.init()
theano = sl.theano.library
T = theano.tensor
from multiverso.theano_ext import sharedvar  # noqa: E402

W = mv.workers_num()

# 200 x 200 zeros, 1 … 40000 added twice by each worker in each of 100 rounds. float32 holds whole numbers exactly up to 2^24;
# with four workers the last rounds go beyond, and there it rounds what a worker itself adds up.
w = sharedvar.mv_shared(value=numpy.zeros((200, 200), dtype=theano.config.floatX), name="W", borrow=True)
delta = T.matrix("delta")
train = theano.function([delta], [], updates=[(w, w + delta)])
step = numpy.arange(1, 40001, dtype="float32").reshape(200, 200)
for i in range(100):
    train(step)
    train(step)
    sharedvar.sync_all_mv_shared_vars()
    mv.barrier()
    sharedvar.sync_all_mv_shared_vars()
    expected = step.astype("float64") * (i + 1) * 2 * W
    assert (w.get_value() == expected)[expected < 2**24].all(), i
    numpy.testing.assert_allclose(w.get_value(), expected, rtol=1e-4)
    mv.barrier()

# The variable itself: in expressions, by name, with its own type.
assert isinstance(w, type(theano.shared(numpy.zeros((2, 2), dtype=theano.config.floatX))))
assert w.name == "W"
assert (theano.function([], 2 * w)() == 2 * w.get_value()).all()

# The master's value counts; dtypes are kept.
b = sharedvar.mv_shared(numpy.full(3, 7 + mv.worker_id(), dtype="float64"))
assert b.get_value().tolist() == [7, 7, 7] and b.get_value().dtype == "float64"
b.set_value(b.get_value() + 1)
b.mv_sync()
mv.barrier()
b.mv_sync()
assert b.get_value().tolist() == [7 + W] * 3
assert sharedvar.mv_shared.shared_vars == [w, b]
mv.barrier()

# The new words for the same, and the original's wrapper.
s = sl.theano.shared(numpy.float32(mv.worker_id() + 5))
assert s.get_value() == 5
t = sl.theano.shared(numpy.arange(6, dtype="float64").reshape(2, 3) * (mv.worker_id() + 1), name="t", borrow=True)
start = numpy.arange(6, dtype="float64").reshape(2, 3)
assert (t.get_value() == start).all() and t.name == "t"
grow = theano.function([], [], updates=[(t, t + 1), (s, s - 2)])
for turn in range(1, 4):
    for _ in range(mv.worker_id() + 1):  # worker i changes it i + 1 times as much
        grow()
    changes = turn * W * (W + 1) // 2
    t.sync()
    mv.barrier()
    t.sync()
    assert (t.get_value() == start + changes).all(), t.get_value()
    own = 5 - 2 * (turn - 1) * W * (W + 1) // 2 - 2 * (mv.worker_id() + 1)
    assert s.get_value() == own, (s.get_value(), own)  # not synchronised yet
    sl.theano.sync_all()
    mv.barrier()
    sl.theano.sync_all()
    assert s.get_value() == 5 - 2 * changes and s.get_value().dtype == "float32"
    assert (t.get_value() == start + changes).all()
    mv.barrier()
wrapped = sharedvar.MVSharedVariable(theano.shared(numpy.zeros(2, dtype="float32"), name="inner"))
wrapped.set_value(numpy.ones(2, dtype="float32"))
wrapped.mv_sync()
mv.barrier()
wrapped.mv_sync()
assert wrapped.get_value().tolist() == [W, W] and wrapped.name == "inner"
mv.barrier()
sl.theano.sync_all()

# Pickled, it keeps its numbers and shares nothing.
again = pickle.loads(pickle.dumps(b))
assert again.get_value().tolist() == b.get_value().tolist()
try:
    again.mv_sync()
except sl.Closed as error:
    assert "make it anew" in str(error)
else:
    raise AssertionError("a loaded variable shares something")

for wrong in (lambda: sharedvar.MVSharedVariable(numpy.zeros(2)), lambda: sl.theano.shared([1, 2])):
    try:
        wrong()
    except (TypeError, sl.SynclineError):
        pass
    else:
        raise AssertionError("what has no numbers was taken")
mv.barrier()
print("all is well")
mv.shutdown()
