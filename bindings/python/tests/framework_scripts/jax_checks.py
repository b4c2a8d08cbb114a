"""Trees of arrays under JAX: in ordinary code, under jit, inside an optimizer."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import syncline as sl
from syncline import jax as slj

sl.init()
W, me = sl.num_workers(), sl.worker_id()
mean = (W - 1) / 2

# Ordinary code: any structure, any dtype, JAX's arrays in and out.
tree = {
    "w": jnp.full((3, 4), me, jnp.float32),
    "layers": [jnp.full((5,), me, jnp.bfloat16), jnp.full((5,), me, jnp.float16)],
    "scalar": jnp.float32(me),
    "none": None,
    "empty": jnp.zeros((0, 3)),
    "number": float(me),
}
got = slj.all_reduce(tree)
assert jax.tree_util.tree_structure(got) == jax.tree_util.tree_structure(tree)
for leaf, before in zip(jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(tree)):
    assert isinstance(leaf, jax.Array) and leaf.shape == jnp.shape(before), leaf
    assert (leaf == mean).all(), leaf
assert got["layers"][0].dtype == jnp.bfloat16 and got["w"].dtype == jnp.float32
assert (tree["w"] == me).all()  # what came in is what it was
for op, expected in (("sum", W * mean), ("max", W - 1), ("min", 0)):
    assert (slj.all_reduce(jnp.full(3, me, jnp.int32), op) == expected).all()
assert isinstance(sl.tree().all_reduce(np.ones(2, np.float32))[0], np.ndarray)

# Without copies: JAX takes over the memory that was reduced.
array = slj._copy(np.arange(1000, dtype=np.float32))
assert slj._handed_over(array).unsafe_buffer_pointer() == array.ctypes.data

reduce_leaves, reduced = slj._native.reduce_leaves, []


def watched(tree, arrays, *more):
    reduced.extend(each.ctypes.data for each in arrays)
    return reduce_leaves(tree, arrays, *more)


slj._native.reduce_leaves = watched
for size in (1, 7, 1000, 300_000):
    given = {name: jnp.full(size, me, name) for name in ("float32", "int32", "float16")}
    del reduced[:]
    results = slj.all_reduce(given, "sum")
    pointers = {leaf.unsafe_buffer_pointer() for leaf in jax.tree_util.tree_leaves(results)}
    assert W == 1 or pointers == set(reduced), (size, pointers, reduced)
    assert not pointers & {leaf.unsafe_buffer_pointer() for leaf in given.values()}  # JAX's own never change
    # They are JAX's for good: later reductions, into memory that is free, leave them as they are.
    for _ in range(3):
        slj.all_reduce({name: jnp.full(size, -1, name) for name in given}, "sum")
    assert all((leaf == W * mean).all() for leaf in jax.tree_util.tree_leaves(results)), results
slj._native.reduce_leaves = reduce_leaves

# The other way: arrays of JAX's that a tree takes by DLPack are read where they are.
own = jnp.arange(1000, dtype=jnp.float32)
assert np.from_dlpack(own).ctypes.data == own.unsafe_buffer_pointer()
shared = sl.empty_shared(1000, dtype="float32")
shared[:] = me
seen = jnp.from_dlpack(shared)
assert seen.unsafe_buffer_pointer() == shared.ctypes.data and (seen == me).all()

for wrong in (
    lambda: slj.all_reduce(jnp.ones(2), "median"),
    lambda: slj.all_reduce_gradients("nothing"),
    lambda: slj.all_reduce(jnp.arange(2)),  # no mean of whole numbers, alone or not
):
    try:
        wrong()
    except ValueError:
        pass
    else:
        raise AssertionError("nonsense was taken")

everybody = slj.broadcast({"a": jnp.arange(3) + me, "b": jnp.full(2, me, jnp.bfloat16)}, root=W - 1)
assert everybody["a"].tolist() == [W - 1, W, W + 1] and (everybody["b"] == W - 1).all()
for root in (W, -1):
    try:
        slj.broadcast(jnp.zeros(2), root=root)
    except ValueError as error:
        assert f"root={root} is none of the workers 0 to {W - 1}" in str(error), error
    else:
        raise AssertionError(f"root={root} was taken")


# Under jit: once per call, in order, arrays of some size too.
@jax.jit
def both(x):
    first = slj.all_reduce(x, "sum")
    second = slj.all_reduce({"again": first * 2}, "max")
    return first, second["again"]


for size in (3, 300_000):
    for turn in range(3):
        first, second = both(jnp.full(size, me + turn, jnp.float32))
        assert (first == W * (mean + turn)).all() and (second == 2 * W * (mean + turn)).all(), (size, turn)


# In an optimizer: a step with everybody's gradients is the step on everybody's samples.
def loss(params, x, y):
    return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) - y) ** 2)


def trained(transformation, x, y):
    params = {"w": jnp.ones((4, 2)) * 0.1, "b": jnp.zeros(2)}

    @functools.partial(jax.jit, static_argnums=())
    def step(params, x, y):
        grads = jax.grad(loss)(params, x, y)
        if transformation is not None:
            grads, _ = transformation.update(grads, transformation.init(params))
        return jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, params, grads)

    for i in range(20):
        params = step(params, x[i], y[i])
    return params


random = np.random.RandomState(1)
x, y = random.randn(20, W, 8, 4).astype("float32"), random.randn(20, W, 8, 2).astype("float32")
together = trained(slj.all_reduce_gradients(), x[:, me], y[:, me])
alone = trained(None, x.reshape(20, W * 8, 4), y.reshape(20, W * 8, 2))
for a, b in zip(jax.tree_util.tree_leaves(together), jax.tree_util.tree_leaves(alone)):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
try:
    import optax
except ImportError:
    pass
else:
    optimizer = optax.chain(slj.all_reduce_gradients(), optax.sgd(0.1))
    params = {"w": jnp.ones(3) * 0.1}
    state = optimizer.init(params)
    updates, state = jax.jit(optimizer.update)({"w": jnp.full(3, float(me))}, state, params)
    np.testing.assert_allclose(updates["w"], -0.1 * mean, rtol=1e-6)

# A table's manager: what goes in is what it was, what comes out is everybody's.
params = {"w": jnp.full((2, 2), float(me)), "h": jnp.full(3, float(me), jnp.bfloat16)}
manager = slj.ParamManager(params)
params = manager.params
assert (params["w"] == 0).all() and (params["h"] == 0).all() and params["h"].dtype == jnp.bfloat16
sl.barrier()
params = manager.sync(jax.tree_util.tree_map(lambda p: p + 1, params))
sl.barrier()
params = manager.sync(params)
assert (params["w"] == W).all() and (params["h"] == W).all(), params
sl.barrier()
print("all is well")
