"""A function of one's own as reducer: syncline run -n 4 python tree_function.py

Each node measures a loss; the best one wins, and its parameters go to everybody. The function is called once per leaf and
child of the tree, never per number.
"""

import numpy as np
import syncline as sl

tree = sl.tree()
rng = np.random.default_rng(tree.node)
candidate = rng.normal(size=1000)
loss = float(np.square(candidate - 0.1).mean())


def better(mine: str, received: str) -> str:
    return min(mine, received)


best = {"loss and node": f"{loss:.6f} {tree.node}"}
result, _ = tree.all_reduce(best, better)
best_loss, winner = result["loss and node"].split()
parameters = tree.broadcast(candidate, root=int(winner))

losses = tree.all_gather(loss)
assert f"{min(losses):.6f}" == best_loss and losses[int(winner) - 1] == min(losses)
if tree.node == 1:
    print(f"of {tree.nodes} nodes, node {winner} has the best loss: {best_loss}; parameters begin with {parameters[0]:.3f}")
