"""Lasagne's own networks under both managers, the new one and the oldest."""

import multiverso as mv
import numpy

mv.init()
import legacy  # noqa: E402, F401  what Theano 1.0 dropped
import lasagne  # noqa: E402
import theano  # noqa: E402
import theano.tensor as T  # noqa: E402
from multiverso.theano_ext.lasagne_ext import param_manager  # noqa: E402

W, me = mv.workers_num(), mv.worker_id()


def build_model():
    lasagne.random.set_rng(numpy.random.RandomState(me))  # each worker draws its own
    layer = lasagne.layers.InputLayer((None, 4))
    layer = lasagne.layers.DenseLayer(layer, 5)
    return lasagne.layers.DenseLayer(layer, 3, nonlinearity=lasagne.nonlinearities.softmax)


def values(network):
    return [value.copy() for value in lasagne.layers.get_all_param_values(network)]


for make, sync in (
    (param_manager.LasagneParamManager, lambda manager: manager.sync_all_param()),
    (lambda net: param_manager.MVNetParamManager(net, mv.is_master_worker()), lambda manager: manager.update_all_param()),
):
    network = build_model()
    own = values(network)
    manager = make(network)
    first = values(network)
    if mv.is_master_worker():
        assert all((a == b).all() for a, b in zip(own, first))
    assert manager.shapes == [(4, 5), (5,), (5, 3), (3,)] and manager.sizes == [20, 5, 15, 3]
    assert [str(each) for each in manager.dtypes] == ["float32"] * 4 and len(manager.all_param_list) == 43
    mv.barrier()
    for parameter in lasagne.layers.get_all_params(network):
        parameter.set_value(parameter.get_value() + numpy.float32(me + 1))
    sync(manager)
    mv.barrier()
    sync(manager)
    for before, after in zip(first, values(network)):
        numpy.testing.assert_allclose(after, before + W * (W + 1) / 2, rtol=1e-5, atol=1e-5)
    mv.barrier()

# It learns: a function of Theano's changes the parameters, the manager carries the changes.
network = build_model()
manager = param_manager.LasagneParamManager(network)
x, y = T.matrix(), T.ivector()
loss = lasagne.objectives.categorical_crossentropy(lasagne.layers.get_output(network, x), y).mean()
parameters = lasagne.layers.get_all_params(network, trainable=True)
learn = theano.function([x, y], loss, updates=lasagne.updates.sgd(loss, parameters, 0.1 / W))
random = numpy.random.RandomState(7 + me)
losses = []
for _ in range(120):
    data = random.randn(16, 4).astype("float32")
    losses.append(float(learn(data, data[:, :3].argmax(axis=1).astype("int32"))))
    manager.sync_all_param()
assert numpy.mean(losses[-10:]) < 0.7 * numpy.mean(losses[:10]), losses
mv.barrier()
print("all is well")
mv.shutdown()
