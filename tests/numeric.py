"""Numbers in and out of compiled functions, and gradients against finite differences in float64."""

import numpy as np

from minding.engine.process.runtime import ms, to_device


def t(*numbers, dtype=np.float32):
    return to_device(np.array(numbers, dtype))


def value(tensor):
    return tensor.asnumpy()


def numeric_gradient(function, x, step=1e-6):
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += step
        down[i] -= step
        gradient[i] = (function(up) - function(down)) / (2 * step)
    return gradient


def assert_gradient(compiled, reference, x):
    """`compiled` in MindSpore and `reference` in NumPy float64 agree in value and slope at x."""
    x = np.asarray(x, np.float64)
    result, gradient = ms.value_and_grad(compiled)(to_device(x.astype(np.float32)))
    np.testing.assert_allclose(value(result), reference(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(gradient), numeric_gradient(reference, x), rtol=1e-4, atol=1e-5)
