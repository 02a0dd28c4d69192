"""The functions of arrays in which `compositions` are written, in NumPy; `ops.arrays` has the same ones compiled."""

import numpy as np

cos, sqrt, tanh, zeros_like, clip = np.cos, np.sqrt, np.tanh, np.zeros_like, np.clip


def concat(parts):
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def after(value, done):
    """`value`; compiled, it is read only after `done`."""
    return value


def still(x):
    """x; compiled, no gradient flows through it."""
    return x


def reshape(x, shape):
    return x.reshape(shape)


def expand(x, axis):
    return x[:, None] if axis == 1 else x[..., None]


def floats(x):
    return x.astype(np.float32, copy=False)


def take(table, index):
    return table[index]


def equal(x, number):
    return x == number


def mean(x, axis=-1, keepdims=True):
    return x.mean(axis=axis, keepdims=keepdims)


def total(x, axis):
    return x.sum(axis=axis)


def running_sum(x, triangle):
    """The sums up to each entry of the last axis; `triangle` is an upper triangle of ones."""
    return np.cumsum(x, axis=-1)


def product(x, column):
    """The product of x ``(B, N)`` and a column ``(N, 1)``, ``(B,)``."""
    return x @ column[:, 0]


def argmax(x):
    return x.argmax(axis=-1)


def largest(x):
    """The largest entry along the last axis, which stays."""
    return x.max(axis=-1, keepdims=True)


def least(x):
    return x.min(axis=-1, keepdims=True)


def softmax(x):
    shares = np.exp(x - largest(x))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def sigmoid(x):
    # The exponential of the usual form could overflow.
    y = 0.5 * x
    np.tanh(y, y)
    y *= 0.5
    y += 0.5
    return y


def symlog(x):
    """sign(x) log(1 + |x|)."""
    return np.copysign(np.log1p(np.abs(x)), x)


def symexp(x):
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`."""
    return np.copysign(np.expm1(np.abs(x)), x)
