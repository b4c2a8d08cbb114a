"""Nodes with unequal amounts of data average their gradients: syncline run -n 4 python tree_average.py

Node k has k batches. Those that run out early take part with zeros until the last one is done, and every step divides by
the number of nodes that still had data.
"""

import numpy as np
import syncline as sl

tree = sl.tree()
rng = np.random.default_rng(tree.node)
truth = np.array([2.0, -1.0, 0.5])
weights = tree.scatter(np.zeros(3))  # node 1's weights for everybody

for step in range(40 * tree.node):
    inputs = rng.normal(size=(32, 3))
    error = inputs @ weights - inputs @ truth
    gradient, contributors = tree.all_reduce(inputs.T @ error / len(error))
    weights -= 0.1 * gradient / contributors

# Whoever is done early missed the others' last steps: the node with the most data has them all.
tree.all_reduce(gradient, zero=lambda leaf, index: leaf.fill(0))
weights = tree.broadcast(weights, root=tree.nodes)

if tree.node == 1:
    print(f"{tree.nodes} nodes, weights {np.round(weights, 2)}")
assert np.allclose(weights, truth, atol=0.05), weights
