"""Quantises the f32 numbers of stdin: `live.py 2bit THRESHOLD ROUNDS COUNT…` reads ROUNDS gradients of each COUNT.

For every gradient its words, the residual and what the words decode to go to stdout. Two bits are MXNet's own code, one bit is its definition.
"""

import sys

import numpy
from two_bit import TwoBit, one_bit, one_bit_decoded


def main():
    kind, threshold, rounds = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    code = TwoBit(threshold)
    for count in map(int, sys.argv[4:]):
        residual = numpy.zeros(count, dtype="float32")
        for _ in range(rounds):
            gradient = numpy.frombuffer(sys.stdin.buffer.read(4 * count), dtype="float32")
            if kind == "2bit":
                words, residual = code.quantize(gradient, residual)
                decoded = code.dequantize(words, count)
            else:
                words, residual = one_bit(gradient, residual, threshold)
                decoded = one_bit_decoded(words, count)
            for part in (words, residual.tobytes(), decoded.tobytes()):
                sys.stdout.buffer.write(part)


main()
