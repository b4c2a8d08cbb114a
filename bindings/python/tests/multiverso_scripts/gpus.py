"""The manual's block that gives each process its GPU."""

import os

# the block as it stands in the manual
import multiverso as mv
mv.init()
worker_id = mv.worker_id()
# NOTICE: To use multiple gpus, we need to set the environment before import theano.
if "THEANO_FLAGS" not in os.environ:
    os.environ["THEANO_FLAGS"] = 'floatX=float32,device=gpu%d,lib.cnmem=1' % worker_id

# import theano after this
import theano
assert theano.config.floatX == "float32"
import importlib.util
if importlib.util.find_spec("pygpu") is None:
    assert theano.config.device == "cpu", theano.config.device
else:
    assert theano.config.device == "cuda%d" % worker_id, theano.config.device
x = theano.tensor.vector()
assert theano.function([x], x * 2)([1, 2]).tolist() == [2, 4]
print("the block has run")
mv.shutdown()
