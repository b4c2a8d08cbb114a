"""A convolutional network of Lasagne's on handwritten digits in Multiverso's manner.

    mpirun -np 4 python ./examples/theano/cnn.py

Needs Theano 1.0.5, Lasagne 0.1 and a C++ compiler (docs/frameworks.md); the first run compiles for some seconds.
"""

import sys
import types
from pathlib import Path

import numpy

# MULTIVERSO: import and init, before theano
import multiverso as mv

mv.init()
import theano
import theano.tensor as T
import theano.tensor.signal
from theano.tensor.signal.pool import pool_2d

# Lasagne 0.1 asks for a module that Theano 1.0 no longer has.
downsample = types.ModuleType("theano.tensor.signal.downsample")
downsample.max_pool_2d = lambda x, ds, ignore_border=None, st=None, padding=(0, 0), mode="max": pool_2d(
    x, ws=ds, ignore_border=ignore_border, stride=st, pad=padding, mode=mode
)
sys.modules[downsample.__name__] = theano.tensor.signal.downsample = downsample

import lasagne
from multiverso.theano_ext.lasagne_ext import param_manager

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import digits_data

N_EPOCHS, BATCH, RATE = 8, 32, 0.1


def build_model(x):
    layer = lasagne.layers.InputLayer((None, 1, 8, 8), x)
    layer = lasagne.layers.Conv2DLayer(layer, 8, (3, 3), pad="same")
    layer = lasagne.layers.MaxPool2DLayer(layer, (2, 2))
    return lasagne.layers.DenseLayer(layer, 10, nonlinearity=lasagne.nonlinearities.softmax)


def functions(rate):
    x, y = T.tensor4("x"), T.ivector("y")
    network = build_model(x)
    output = lasagne.layers.get_output(network)
    cost = lasagne.objectives.categorical_crossentropy(output, y).mean()
    params = lasagne.layers.get_all_params(network, trainable=True)
    learn = theano.function([x, y], cost, updates=lasagne.updates.sgd(cost, params, rate))
    return network, learn, theano.function([x], output)


def train(learn, images, labels, after_batch, seed=0):
    random = numpy.random.RandomState(seed)
    for _ in range(N_EPOCHS):
        order = random.permutation(len(images))
        for first in range(0, len(order), BATCH):
            batch = order[first : first + BATCH]
            learn(images[batch], labels[batch])
            after_batch()


if __name__ == "__main__":
    images, labels, test_images, test_labels = digits_data.load()
    images, test_images = images.reshape(-1, 1, 8, 8), test_images.reshape(-1, 1, 8, 8)
    labels = labels.astype("int32")
    lasagne.random.set_rng(numpy.random.RandomState(0))
    network, learn, predict = functions(RATE)
    first = lasagne.layers.get_all_param_values(network)
    # MULTIVERSO: everybody starts from the master's network, learns from its share, and adds up its steps
    manager = param_manager.LasagneParamManager(network)
    mine = slice(mv.worker_id(), None, mv.workers_num())
    train(learn, images[mine], labels[mine], manager.sync_all_param, seed=mv.worker_id())
    mv.barrier()
    manager.sync_all_param()
    # MULTIVERSO: the master prints
    if mv.is_master_worker():
        right = (predict(test_images).argmax(axis=1) == test_labels).mean()
        print("%d processes: test accuracy %.4f" % (mv.workers_num(), right))
    master = mv.is_master_worker()
    mv.shutdown()
    if master:
        lasagne.layers.set_all_param_values(network, first)
        train(learn, images, labels, lambda: None)
        right = (predict(test_images).argmax(axis=1) == test_labels).mean()
        print("one process alone: test accuracy %.4f" % right)
