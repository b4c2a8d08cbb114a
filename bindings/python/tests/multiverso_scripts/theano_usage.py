"""The manual's block on shared variables of Theano, with a model around it."""

import multiverso as mv
import numpy
mv.init()
import theano
n_in, n_out = 4, 3

# the block as it stands in the manual
from multiverso.theano_ext import sharedvar
W = sharedvar.mv_shared(
    value=numpy.zeros(
        (n_in, n_out),
        dtype=theano.config.floatX
    ),
    name='W',
    borrow=True
)

# build the model
x = theano.tensor.matrix()
f = theano.function([x], theano.tensor.dot(x, W).sum(), updates=[(W, W + 1)])

# train the model
f(numpy.ones((2, n_in), dtype=theano.config.floatX))

# When you are ready to add the delta of the variable to parameter
# server and sync the latest value, you can run this function
W.mv_sync()


# If you want to sync all variables created by `sharedvar.mv_shared`,
# you can use this function. It will add the gradients (delta value)
# to the server and update the latest value from the server.
sharedvar.sync_all_mv_shared_vars()

mv.barrier()
W.mv_sync()
assert (W.get_value() == mv.workers_num()).all()
mv.barrier()
print("the block has run")
mv.shutdown()
