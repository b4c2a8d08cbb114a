"""A tree of the tasks of a Slurm step, without a session: srun -N 2 -n 4 python slurm_tree.py

Each task sees data of its own; averaged gradients lead all of them to the same weights. `tree.gpu` says which GPU of its node
is this task's, from 1 (`SlurmTree(tasks_per_gpu=2)`: two tasks share each). Under another launcher
it is a tree of its processes.
"""

import numpy as np
import syncline as sl

with sl.SlurmTree() as tree:
    rng = np.random.default_rng(tree.node)
    truth = np.array([2.0, -1.0, 0.5])
    weights = tree.scatter(rng.normal(size=3))  # node 1's weights for everybody

    for step in range(60):
        inputs = rng.normal(size=(32, 3))
        error = inputs @ weights - inputs @ truth
        gradient, contributors = tree.all_reduce(inputs.T @ error / len(error))
        weights -= 0.2 * gradient / contributors

    assert np.allclose(weights, truth, atol=1e-3), weights
    gpus = tree.all_gather(tree.gpu)
    alike = len(set(tree.all_gather(weights.tobytes().hex()))) == 1
    if tree.node == 1:
        print(f"{tree.nodes} nodes on GPUs {gpus}, weights {np.round(weights, 2)}, {'the same bits' if alike else 'different'} on all")
