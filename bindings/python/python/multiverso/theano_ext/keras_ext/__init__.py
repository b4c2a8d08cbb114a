"""Multiverso's extension of Keras."""
