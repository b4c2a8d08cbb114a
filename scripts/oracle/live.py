"""Quantises the f32 numbers of stdin with MXNet, `live.py THRESHOLD ROUNDS`: words and residuals of every round go to stdout."""

import sys

import numpy
from two_bit import TwoBit


def main():
    threshold, rounds = float(sys.argv[1]), int(sys.argv[2])
    numbers = numpy.frombuffer(sys.stdin.buffer.read(), dtype="float32").reshape(rounds, -1)
    code, residual = TwoBit(threshold), numpy.zeros(numbers.shape[1], dtype="float32")
    for gradient in numbers:
        words, residual = code.quantize(gradient, residual)
        sys.stdout.buffer.write(words)
        sys.stdout.buffer.write(residual.astype("float32").tobytes())


main()
