"""scikit-learn's step-by-step models, their steps added up or averaged."""

import numpy as np
import syncline as sl
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

sl.init()
W = sl.num_workers()
digits = load_digits()
X, y = digits.data / 16, digits.target
me = sl.worker_id()


def linear(average):
    return SGDClassifier(random_state=me, learning_rate="constant", eta0=0.01)


def perceptron(average):
    rate = 0.2 if average else 0.2 / W  # added up, W workers take W steps at once
    return MLPClassifier((40,), solver="sgd", learning_rate_init=rate, momentum=0.5, batch_size=50, random_state=me)


for make, average in [(make, average) for make in (linear, perceptron) for average in (True, False)]:
    model = make(average)
    model.partial_fit(X[:10], y[:10], classes=range(10))
    manager = sl.sklearn.ParamManager(model, average=average)
    shard = sl.data.shard(1400, batch=50, shuffle=True)
    for _ in range(5):
        for batch in shard:
            model.partial_fit(X[batch], y[batch])
            manager.sync()
    sl.barrier()
    manager.sync()
    assert model.score(X[1400:], y[1400:]) > 0.8, (average, model.score(X[1400:], y[1400:]))
    alike = sl.tree().all_gather(b"".join(value.tobytes() for value in manager.get_values()))
    assert all(each == alike[0] for each in alike)
    sl.barrier()

# In numbers: everybody has worker 0's parameters, then the sum of all changes, or the mean of all models.
target = X[:, 30] + X[:, 2]
models = [
    (SGDClassifier(random_state=me), (X[:10], y[:10], range(10)), (X[me::W], y[me::W])),
    (SGDRegressor(random_state=me), (X[:10], target[:10]), (X[me::W], target[me::W])),
    (MLPClassifier(hidden_layer_sizes=(7, 5), random_state=me), (X[:10], y[:10], range(10)), (X[me::W], y[me::W])),
    (MLPRegressor(hidden_layer_sizes=(6,), random_state=me), (X[:10], target[:10]), (X[me::W], target[me::W])),
]
for (model, first, more), average in [(each, average) for each in models for average in (False, True)]:
    X1, y1, *classes = first
    model.partial_fit(X1, y1, **({"classes": classes[0]} if classes else {}))
    manager = sl.sklearn.ParamManager(model, average=average)
    counts = 2 * len(model.coefs_) if hasattr(model, "coefs_") else 2
    assert len(manager.get_values()) == counts
    start = [value.copy() for value in manager.get_values()]
    if not average:
        firsts = sl.tree().all_gather(start)
        assert all((a == b).all() for other in firsts for a, b in zip(firsts[0], other))
    model.partial_fit(*more)
    own = [value.copy() for value in manager.get_values()]
    assert any((a != b).any() for a, b in zip(start, own))
    everybody = sl.tree().all_gather(own)
    sl.barrier()
    manager.sync()
    sl.barrier()
    if not average:
        manager.sync()
    for place, value in enumerate(manager.get_values()):
        each = [worker[place] for worker in everybody]
        expected = np.mean(each, axis=0) if average else start[place] + sum(w - start[place] for w in each)
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12)
    model.partial_fit(*more)  # goes on from there
    assert any((a != b).any() for a, b in zip(own, manager.get_values()))
    sl.barrier()
try:
    sl.sklearn.ParamManager(SGDClassifier())
except ValueError as error:
    assert "partial_fit once" in str(error)
else:
    raise AssertionError("a model without parameters was taken")
print("all is well")
