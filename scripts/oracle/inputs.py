"""Weights and gradients that a few whole numbers define, so that both sides compute them and no file has to hold them."""

import numpy

ROWS, COLUMNS = 6, 5
COUNT = ROWS * COLUMNS
STEPS = 50


def weights(dtype="float32"):
    numbers = numpy.arange(COUNT, dtype=numpy.int64)
    return ((numbers * 31 + 7) % 97 / 48.5 - 1.0).astype(dtype)


def gradient(step, dtype="float32"):
    """The gradient of step 1, 2, …"""
    numbers = numpy.arange(COUNT, dtype=numpy.int64)
    return ((numbers * 7919 + step * 104729 + 12345) % 2003 / 1001.5 - 1.0).astype(dtype)


def rows(step):
    """The rows that a row-sparse gradient of this step has."""
    return [row for row in range(ROWS) if (row * 5 + step * 3) % 4 < 2]
