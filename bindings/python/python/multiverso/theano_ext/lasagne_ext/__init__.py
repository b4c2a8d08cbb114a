"""Multiverso's extension of Lasagne."""
