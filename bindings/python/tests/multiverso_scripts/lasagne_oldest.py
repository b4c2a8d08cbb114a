"""The oldest manual's block on Lasagne, with a network to manage."""

import legacy
import lasagne
import multiverso as mv
mv.init()
is_master_worker = mv.is_master_worker()


def build_model():
    return lasagne.layers.DenseLayer(lasagne.layers.InputLayer((None, 4)), 3)


# the block as it stands in the oldest manual
from multiverso.theano_ext.lasagne_ext import param_manager

network = build_model()  # build_model is a function you implement to build model
mvnpm = param_manager.MVNetParamManager(network, is_master_worker)  # is_master_worker is true only in one process. When it is true, the process will initialize the parameters

# training the model

# When you are ready to add the delta of the variable in this model to the parameter server and get the latest value, you can run this function
mvnpm.update_all_param()

mv.barrier()
print("the block has run")
mv.shutdown()
