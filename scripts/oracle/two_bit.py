"""MXNet's own two-bit quantiser, called through the symbols of its library: it has no Python door."""

import ctypes

import mxnet as mx
import numpy
from mxnet.base import _LIB

_CLASS = "_ZN5mxnet7kvstore19GradientCompression"


class TwoBit:
    def __init__(self, threshold):
        self._object = ctypes.create_string_buffer(1024)
        constructor = getattr(_LIB, _CLASS + "C1Ev")
        constructor.argtypes, constructor.restype = [ctypes.c_void_p], None
        constructor(ctypes.addressof(self._object))
        choose = getattr(_LIB, _CLASS + "20SetTwoBitCompressionEf")
        choose.argtypes, choose.restype = [ctypes.c_void_p, ctypes.c_float], None
        choose(ctypes.addressof(self._object), threshold)
        self._quantize = getattr(_LIB, _CLASS + "8QuantizeERKNS_7NDArrayEPS2_S5_i")
        self._quantize.argtypes, self._quantize.restype = [ctypes.c_void_p] * 4 + [ctypes.c_int], None
        self._dequantize = getattr(_LIB, _CLASS + "10DequantizeERKNS_7NDArrayEPS2_i")
        self._dequantize.argtypes, self._dequantize.restype = [ctypes.c_void_p] * 3 + [ctypes.c_int], None

    def quantize(self, gradient, residual):
        """The words as bytes, and the new residual."""
        source, rest = mx.nd.array(gradient, dtype="float32"), mx.nd.array(residual, dtype="float32")
        words = mx.nd.zeros((max(1, -(-len(gradient) // 16)),), dtype="float32")
        self._quantize(ctypes.addressof(self._object), source.handle, words.handle, rest.handle, 0)
        mx.nd.waitall()
        return words.asnumpy().tobytes(), rest.asnumpy()

    def dequantize(self, words, count):
        source, out = mx.nd.array(numpy.frombuffer(words, dtype="float32"), dtype="float32"), mx.nd.zeros((count,), dtype="float32")
        self._dequantize(ctypes.addressof(self._object), source.handle, out.handle, 0)
        mx.nd.waitall()
        return out.asnumpy()


def one_bit(gradient, residual, threshold):
    """The definition: MXNet 1.9.1 has no one-bit code to ask."""
    total = (residual + gradient).astype(numpy.float32)
    up = total > numpy.float32(threshold)
    bits = numpy.zeros(-(-len(total) // 32) * 32, dtype=numpy.uint8)
    bits[: len(total)] = up
    rest = numpy.where(up, total - numpy.float32(1), total + numpy.float32(1)).astype(numpy.float32)
    return numpy.packbits(bits).tobytes(), rest


def one_bit_decoded(words, count):
    up = numpy.unpackbits(numpy.frombuffer(words, dtype=numpy.uint8))[:count]
    return numpy.where(up == 1, numpy.float32(1), numpy.float32(-1)).astype(numpy.float32)
