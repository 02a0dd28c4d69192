"""The functions of arrays in which `acting.compositions` are written, compiled; `acting.arrays` describes them."""

from minding.engine.process.runtime import ms, ops
from minding.policies.ops.imagination import symexp, symlog
from minding.policies.ops.primitives import after, tanh

__all__ = ["after", "symexp", "symlog", "tanh"]


def concat(parts):
    return parts[0] if len(parts) == 1 else ops.Concat(-1)(parts)


def still(x):
    return ops.stop_gradient(x)


def reshape(x, shape):
    return ops.Reshape()(x, shape)


def expand(x, axis):
    return ops.ExpandDims()(x, axis)


def floats(x):
    return ops.Cast()(x, ms.float32)


def zeros_like(x):
    return ops.ZerosLike()(x)


def take(table, index):
    return ops.Gather()(table, index, 0)


def equal(x, number):
    return ops.Equal()(x, number)


def clip(x, low, high):
    return ops.clamp(x, low, high)


def mean(x, axis=-1, keepdims=True):
    return ops.ReduceMean(keepdims)(x, axis)


def total(x, axis):
    return ops.ReduceSum()(x, axis)


def running_sum(x, triangle):
    # A product, because exported files have no operator that adds up.
    return ops.MatMul()(x, triangle)


def product(x, column):
    return ops.Squeeze(-1)(ops.MatMul()(x, column))


def argmax(x):
    return ops.Argmax(-1)(x)


def largest(x):
    return ops.ReduceMax(True)(x, -1)


def least(x):
    return -largest(-x)


def softmax(x):
    return ops.Softmax(-1)(x)


def cos(x):
    return ops.Cos()(x)


def sqrt(x):
    return ops.Sqrt()(x)


def sigmoid(x):
    return ops.Sigmoid()(x)
