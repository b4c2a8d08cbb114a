"""scikit-learn's step-by-step models, their steps added up or averaged."""

import numpy as np
import syncline as sl
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

sl.init()
W = sl.num_workers()
digits = load_digits()
X, y = digits.data / 16, digits.target
for average in (True, False):
    model = SGDClassifier(random_state=sl.worker_id(), learning_rate="constant", eta0=0.01)
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
    alike = sl.tree().all_gather(np.asarray(model.coef_).tobytes())
    assert all(each == alike[0] for each in alike)
    sl.barrier()
try:
    sl.sklearn.ParamManager(SGDClassifier())
except ValueError as error:
    assert "partial_fit once" in str(error)
else:
    raise AssertionError("a model without parameters was taken")
print("all is well")
