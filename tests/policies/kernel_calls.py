"""Calls of kernels outside of graphs, as `ops.Custom` makes them."""

import ctypes

import numpy as np
import pytest

from minding.policies import kernels
from minding.policies.kernels import library

LIBRARY = ctypes.CDLL(str(kernels.LIBRARY)) if kernels.compiled() else None
if LIBRARY is not None:
    LIBRARY.onednn_products.restype = ctypes.c_int64
WITH_ONEDNN = pytest.param(True, marks=pytest.mark.skipif(library.onednn() is None, reason="MindSpore without oneDNN"))


def run(name, *arrays):
    """Calls the kernel as `ops.Custom` does: inputs, then outputs. Returns its code, 0 for success."""
    for array in arrays:
        assert array.dtype in (np.float32, np.int32, np.uint8)
        assert array.flags.c_contiguous
    count = len(arrays)
    shapes = [(ctypes.c_int64 * max(1, a.ndim))(*a.shape) for a in arrays]
    pointers = (ctypes.POINTER(ctypes.c_int64) * count)(
        *[ctypes.cast(s, ctypes.POINTER(ctypes.c_int64)) for s in shapes]
    )
    return getattr(LIBRARY, name)(
        count,
        (ctypes.c_void_p * count)(*[a.ctypes.data for a in arrays]),
        (ctypes.c_int * count)(*[a.ndim for a in arrays]),
        pointers,
        (ctypes.c_char_p * count)(*[str(a.dtype).encode() for a in arrays]),
        None,
        None,
    )


def result(name, inputs, *shapes, dtype=np.float32):
    outputs = [np.full(shape, 77, dtype) for shape in shapes]
    assert run(name, *inputs, *outputs) == 0
    return outputs[0] if len(outputs) == 1 else outputs


def draws(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def doubles(arrays):
    return [a.astype(np.float64) for a in arrays]


VALUE = {"none": lambda x: x, "relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}
SLOPE = {"none": lambda y: np.ones_like(y), "relu": lambda y: 1.0 * (y > 0), "tanh": lambda y: 1 - y * y}


def check_layer(arrays, activation):
    x, weight, bias, dout = arrays
    x64, weight64, bias64, dout64 = doubles(arrays)
    (batch, inputs), outputs = x.shape, len(weight)
    y = result(f"linear_{activation}", (x, weight, bias), (batch, outputs))
    close(y, VALUE[activation](x64 @ weight64.T + bias64), inputs)
    before = dout64 * SLOPE[activation](y.astype(np.float64))
    dx = result(f"linear_{activation}_input_gradient", (dout, y, weight), (batch, inputs))
    close(dx, before @ weight64, outputs)
    dweight, dbias = result(f"linear_{activation}_parameter_gradient", (dout, y, x), (outputs, inputs), (outputs,))
    close(dweight, before.T @ x64, batch)
    close(dbias, before.sum(0), batch)


def close(found, expected, terms):
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6 * np.sqrt(terms))


@pytest.fixture
def defaults_afterwards():
    yield
    LIBRARY.use_threads(1)
    kernels.use_onednn(False)
