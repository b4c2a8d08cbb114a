"""What Theano 1.0 and Python 3.11 dropped, and Lasagne 0.1 and Keras 1.2.2 still ask for; imported before these."""

import collections
import collections.abc
import inspect
import sys
import types

import theano.tensor.signal as signal
from theano.tensor.signal.pool import pool_2d

downsample = types.ModuleType("theano.tensor.signal.downsample")


def max_pool_2d(input, ds, ignore_border=None, st=None, padding=(0, 0), mode="max"):
    return pool_2d(input, ws=ds, ignore_border=ignore_border, stride=st, pad=padding, mode=mode)


downsample.max_pool_2d = max_pool_2d
sys.modules[downsample.__name__] = signal.downsample = downsample

for name in ("Callable", "Iterable", "Iterator", "Mapping", "MutableMapping", "Sequence"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))

if not hasattr(inspect, "getargspec"):
    ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")

    def getargspec(function):
        full = inspect.getfullargspec(function)
        return ArgSpec(full.args, full.varargs, full.varkw, full.defaults)

    inspect.getargspec = getargspec
