"""The callback of old and its successor, on whichever Keras there is: 1.2.2 on Theano, or 3 on JAX."""

import os
import sys
import tempfile

import multiverso as mv
import numpy
import syncline as sl

mv.init()
if os.environ["KERAS_BACKEND"] == "theano":
    import legacy  # noqa: F401
import keras  # noqa: E402
from keras.layers import Dense  # noqa: E402
from keras.models import Sequential  # noqa: E402
from multiverso.theano_ext.keras_ext.callbacks import MVCallback  # noqa: E402
from multiverso.theano_ext.keras_ext.param_manager import KerasParamManager  # noqa: E402

W, me = mv.workers_num(), mv.worker_id()
old = keras.__version__.startswith("1.")
random = numpy.random.RandomState(3 + me)
X = random.randn(160, 4).astype("float32")
Y = numpy.eye(3, dtype="float32")[X[:, :3].argmax(axis=1)]


def build():
    numpy.random.seed(me)
    if not old:
        keras.utils.set_random_seed(me)
    if old:
        model = Sequential([Dense(5, input_dim=4, activation="tanh"), Dense(3, activation="softmax")])
    else:
        model = Sequential([keras.Input((4,)), Dense(5, activation="tanh"), Dense(3, activation="softmax")])
    model.compile(loss="categorical_crossentropy", optimizer="sgd", metrics=["accuracy"])
    return model


def fit(model, epochs, verbose=0, **options):
    return model.fit(X, Y, batch_size=16, verbose=verbose, **{"nb_epoch" if old else "epochs": epochs}, **options)


# A frequency that is none is refused when the callback is made, before anything is shared.
for wrong in (0, -1, 1.5, "3"):
    try:
        MVCallback(None, freq=wrong)
    except ValueError as error:
        assert "Frequency must be an integer greater than 0" in str(error)
    else:
        raise AssertionError(f"freq={wrong} was taken")

# Everybody starts from the master's weights; frequency 3 over 10 batches exchanges after 3, 6 and 9.
model = build()
own = model.get_weights()
callback = MVCallback(model, freq=3)
if mv.is_master_worker():
    assert all((a == b).all() for a, b in zip(own, model.get_weights()))
first = model.get_weights()
batches, exchanged = [0], []


class Counting(keras.callbacks.Callback):
    def on_batch_end(self, batch, logs=None):
        batches[0] += 1


exchange = callback.kpm.sync_all_param
callback.kpm.sync_all_param = lambda: (exchanged.append(batches[0]), exchange())
fit(model, 1, callbacks=[Counting(), callback])
assert exchanged == [3, 6, 9], exchanged
mv.barrier()
callback.kpm.sync_all_param()
mv.barrier()
callback.kpm.sync_all_param()
final = sl.tree().all_gather([weight.tobytes() for weight in model.get_weights()])
assert all(each == final[0] for each in final), "the workers' weights differ"
assert any((a != b).any() for a, b in zip(first, model.get_weights()))

# The manager alone.
manager = KerasParamManager(model)
assert manager.shapes == [(4, 5), (5,), (5, 3), (3,)]
model.set_weights([weight + 1 for weight in model.get_weights()])
before = [numpy.array(value) for value in manager._shared.values()]
manager.sync_all_param()
mv.barrier()
manager.sync_all_param()
for start, now in zip(before, model.get_weights()):
    numpy.testing.assert_allclose(now, start + W, rtol=1e-4, atol=1e-4)
mv.barrier()

# The successor: weights and metrics are everybody's, the loss goes down, and one worker prints.
model = build()
history = fit(model, 6, verbose=2, callbacks=[sl.keras.SyncCallback(every=2)])
together = sl.tree().all_gather([[weight.tobytes() for weight in model.get_weights()], history.history["loss"]])
assert all(each[0] == together[0][0] for each in together), "the workers' weights differ"
assert all(each[1] == together[0][1] for each in together), together
assert history.history["loss"][-1] < history.history["loss"][0]



# The metrics of an epoch are the means of what the workers had, for whoever comes after the callback.
class Keeping(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.kept = []

    def on_epoch_end(self, epoch, logs=None):
        self.kept.append({name: float(value) for name, value in logs.items()})


before, after = Keeping(), Keeping()
history = fit(build(), 3, callbacks=[before, sl.keras.SyncCallback(), after])
everybody = sl.tree().all_gather(before.kept)
names = sorted(before.kept[0])
assert len(names) == 2 and "loss" in names, names  # the other is called "acc" or "accuracy"
for epoch in range(3):
    for name in names:
        own = [kept[epoch][name] for kept in everybody]
        assert name != "loss" or len(set(own)) == W, own  # else this would show nothing
        numpy.testing.assert_allclose(after.kept[epoch][name], sum(own) / W, rtol=1e-6)
        numpy.testing.assert_allclose(history.history[name][epoch], sum(own) / W, rtol=1e-6)


# every=3 over two epochs of ten batches: the workers have the same weights after 3, 6, … 18 batches and at the end, and
# other weights in between; the weights that they have then are the means.
class Comparing(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches, self.alike = 0, []

    def on_batch_end(self, batch, logs=None):
        self.batches += 1
        bits = sl.tree().all_gather(b"".join(weight.tobytes() for weight in self.model.get_weights()))
        if len(set(bits)) == 1:
            self.alike.append(self.batches)


def gathered(weights):
    return [numpy.mean(each, axis=0) for each in zip(*sl.tree().all_gather([numpy.array(w) for w in weights]))]


class Means(keras.callbacks.Callback):
    """Stands before the callback, and says what the weights are to become."""

    def on_batch_end(self, batch, logs=None):
        self.means = gathered(self.model.get_weights())


class Meant(keras.callbacks.Callback):
    def on_batch_end(self, batch, logs=None):
        if comparing.batches % 3 == 0:
            for expected, weight in zip(means.means, self.model.get_weights()):
                numpy.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)


model = build()
comparing, means = Comparing(), Means()
fit(model, 2, callbacks=[means, sl.keras.SyncCallback(every=3), comparing, Meant()])
assert comparing.batches == 20
assert comparing.alike == [3, 6, 9, 12, 15, 18] or W == 1, comparing.alike
final = sl.tree().all_gather([weight.tobytes() for weight in model.get_weights()])
assert all(each == final[0] for each in final), "the last two batches were not exchanged"

model = build()
history = fit(model, 2, callbacks=[sl.keras.SyncCallback(average=False)])
for wrong in (0, -2, None):
    try:
        sl.keras.SyncCallback(every=wrong)
    except ValueError:
        pass
    else:
        raise AssertionError(f"every={wrong} was taken")



# Each fit begins with the master's weights, also the second one with the same callback: here the master has loaded some.
class Beginning(keras.callbacks.Callback):
    def on_batch_begin(self, batch, logs=None):
        if batch == 0:
            self.weights = [weight.copy() for weight in self.model.get_weights()]


for average in (True, False):
    model, callback, beginning = build(), sl.keras.SyncCallback(average=average), Beginning()
    fit(model, 1, callbacks=[callback])
    mv.barrier()
    if mv.is_master_worker():
        model.set_weights([weight * 0 + 3 for weight in model.get_weights()])
    fit(model, 1, callbacks=[callback, beginning])
    if average:
        assert all((weight == 3).all() for weight in beginning.weights), beginning.weights
    together = sl.tree().all_gather([weight.tobytes() for weight in beginning.weights])
    assert all(each == together[0] for each in together), "the workers began with different weights"
    mv.barrier()

# The master alone may validate; what it finds is in everybody's logs, so that all stop early together.
options = {"validation_data": (X, Y)} if mv.is_master_worker() else {}
history = fit(build(), 2, callbacks=[sl.keras.SyncCallback()], **options)
together = sl.tree().all_gather(history.history["val_loss"])
assert len(together[0]) == 2 and all(each == together[0] for each in together), together

# Workers that have different numbers of batches are told so, with the line of their own program.
if W > 1:
    count = 160 if mv.is_master_worker() else 144
    epochs = {"nb_epoch" if old else "epochs": 1}
    try:
        build().fit(X[:count], Y[:count], batch_size=16, verbose=0, callbacks=[sl.keras.SyncCallback()], **epochs)
    except sl.ContractMismatch as error:
        assert "keras_callbacks.py" in str(error), error
        assert "the same number of batches" in error.__notes__[0], error.__notes__
    else:
        raise AssertionError("nine batches passed for ten")

# What writes files is for the master.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "weights.h5" if old else "best.weights.h5")
    options = {} if old else {"save_weights_only": True}
    saves = sl.keras.only_master(keras.callbacks.ModelCheckpoint(path, **options))
    assert len(saves) == (me == 0)
    fit(model, 1, callbacks=[sl.keras.SyncCallback(), *saves])
    assert os.path.exists(path) == (me == 0)
mv.barrier()
sys.stdout.flush()
print("all is well")
mv.shutdown()
