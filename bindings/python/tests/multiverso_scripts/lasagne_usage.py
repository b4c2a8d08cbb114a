"""The manual's block on Lasagne, with a network to manage."""

import legacy
import lasagne
import multiverso as mv
mv.init()


def build_model():
    return lasagne.layers.DenseLayer(lasagne.layers.InputLayer((None, 4)), 3)


# the block as it stands in the manual
from multiverso.theano_ext.lasagne_ext import param_manager

network = build_model()  # build_model is a function you implement to build model

# The LasagneParamManager will initialize the parameters and sync them with
# parameter server
lpm = param_manager.LasagneParamManager(network)

# Train the model

# When you are ready to add the delta of the variable in this model to the parameter
# server and get the latest value, you can run this function
lpm.sync_all_param()

mv.barrier()
print("the block has run")
mv.shutdown()
