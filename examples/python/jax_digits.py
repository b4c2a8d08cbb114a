"""JAX on handwritten digits: gradients are averaged inside of the compiled step.

Four processes:      syncline run -n 4 python jax_digits.py
"""

from __future__ import annotations

from typing import Any

import digits_data
import jax
import jax.numpy as jnp
import numpy as np

import syncline as sl

EPOCHS, BATCH, RATE = 15, 32, 0.5


def initial() -> Any:
    random = np.random.default_rng(0)
    return {
        "hidden": jnp.asarray(random.normal(0, 0.1, (64, 64)), jnp.float32),
        "bias": jnp.zeros(64),
        "out": jnp.asarray(random.normal(0, 0.1, (64, 10)), jnp.float32),
    }


def scores(params: Any, images: Any) -> Any:
    return jax.nn.relu(images @ params["hidden"] + params["bias"]) @ params["out"]


def loss(params: Any, images: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(scores(params, images)), labels[:, None], axis=1).mean()


def train(batches: list[Any], params: Any, transformation: Any) -> Any:
    @jax.jit
    def step(params: Any, images: Any, labels: Any) -> Any:
        grads = jax.grad(loss)(params, images, labels)
        if transformation is not None:
            grads, _ = transformation.update(grads, transformation.init(params))
        return jax.tree_util.tree_map(lambda p, g: p - RATE * g, params, grads)

    for images, labels in batches:
        params = step(params, images, labels)
    return params


def main() -> None:
    images, labels, test_images, test_labels = digits_data.load()

    def batches(shard: Any, size: int) -> list[Any]:
        whole = [batch for _ in range(EPOCHS) for batch in shard if len(batch) == size]  # one shape, one compilation
        return [(images[batch], labels[batch]) for batch in whole]

    with sl.init():
        workers = sl.num_workers()
        size = max(1, BATCH // workers)
        shard = sl.data.shard(len(images), batch=size, shuffle=True)
        params = sl.jax.broadcast(initial())
        params = train(batches(shard, size), params, sl.jax.all_reduce_gradients())
        if sl.is_master_worker():
            right = float((scores(params, test_images).argmax(1) == test_labels).mean())
            print(f"{workers} processes: test accuracy {right:.4f}")
        master = sl.is_master_worker()
    if master:
        orders = [np.random.default_rng(epoch).permutation(len(images)) for epoch in range(EPOCHS)]
        plain = [order[i : i + BATCH] for order in orders for i in range(0, len(order) - BATCH + 1, BATCH)]
        alone = train([(images[batch], labels[batch]) for batch in plain], initial(), None)
        right = float((scores(alone, test_images).argmax(1) == test_labels).mean())
        print(f"one process alone: test accuracy {right:.4f}")


if __name__ == "__main__":
    main()
