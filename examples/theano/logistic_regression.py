"""Logistic regression on handwritten digits in Multiverso's manner: shared variables that all processes share.

    mpirun -np 4 python ./examples/theano/logistic_regression.py

With Theano, or with PyTensor where that is installed instead. Lines marked MULTIVERSO are all that a program for one process lacks.
"""

import sys
from pathlib import Path

import numpy

# MULTIVERSO: import and init, before theano
import multiverso as mv
import syncline as sl

mv.init()
theano = sl.theano.library
from multiverso.theano_ext import sharedvar

T = theano.tensor
sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import digits_data

N_EPOCHS, BATCH, RATE = 20, 32, 0.5


class LogisticRegression:
    """Softmax of a linear map; `shared` makes its parameters."""

    def __init__(self, input, shared, n_in=64, n_out=10):
        self.W = shared(value=numpy.zeros((n_in, n_out), dtype=theano.config.floatX), name="W", borrow=True)
        self.b = shared(value=numpy.zeros((n_out,), dtype=theano.config.floatX), name="b", borrow=True)
        self.scores = T.dot(input, self.W) + self.b
        self.params = [self.W, self.b]

    def cost(self, target):
        softmax = T.nnet.softmax if hasattr(T, "nnet") else lambda x: T.special.softmax(x, axis=1)
        return -(T.log(softmax(self.scores) + 1e-9) * target).sum(axis=1).mean()


def train(images, labels, test_images, test_labels, shared, rate, after_batch, seed=0):
    x, y = T.matrix("x"), T.matrix("y")
    model = LogisticRegression(x, shared)
    cost = model.cost(y)
    gradients = (getattr(T, "grad", None) or theano.grad)(cost, model.params)
    updates = [(p, p - numpy.float32(rate) * g) for p, g in zip(model.params, gradients)]
    learn = theano.function([x, y], cost, updates=updates)
    predict = theano.function([x], model.scores)
    images, targets = images.astype(theano.config.floatX), numpy.eye(10, dtype=theano.config.floatX)[labels]
    random = numpy.random.RandomState(seed)
    for _ in range(N_EPOCHS):
        order = random.permutation(len(images))
        for first in range(0, len(order), BATCH):
            batch = order[first : first + BATCH]
            learn(images[batch], targets[batch])
            after_batch()
    return lambda: (predict(test_images.astype(theano.config.floatX)).argmax(axis=1) == test_labels).mean()


if __name__ == "__main__":
    images, labels, test_images, test_labels = digits_data.load()
    # MULTIVERSO: each worker learns from its share, and everybody's steps are added up
    mine = slice(mv.worker_id(), None, mv.workers_num())
    accuracy = train(
        images[mine], labels[mine], test_images, test_labels, sharedvar.mv_shared, RATE / mv.workers_num(),
        sharedvar.sync_all_mv_shared_vars, seed=mv.worker_id(),
    )
    mv.barrier()
    sharedvar.sync_all_mv_shared_vars()
    # MULTIVERSO: the master prints
    if mv.is_master_worker():
        print("%d processes: test accuracy %.4f" % (mv.workers_num(), accuracy()))
    master = mv.is_master_worker()
    mv.shutdown()
    if master:
        alone = train(images, labels, test_images, test_labels, theano.shared, RATE, lambda: None)
        print("one process alone: test accuracy %.4f" % alone())
