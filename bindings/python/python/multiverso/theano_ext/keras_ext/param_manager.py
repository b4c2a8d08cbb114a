"""All weights of a Keras model, synchronised at once."""

from multiverso.theano_ext.param_manager import KerasParamManager

__all__ = ["KerasParamManager"]
