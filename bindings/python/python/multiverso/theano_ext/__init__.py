"""Multiverso's extensions of Theano, Lasagne and Keras, in their old places."""
