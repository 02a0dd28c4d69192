"""Dropout of hidden layers: the numbers that are dropped, also with this package's kernels."""

import numpy as np
import pytest
from fakes import needs_kernels

from minding.engine.process.runtime import ms, to_device
from minding.policies.networks.fused import fuse_layers
from minding.policies.networks.layers import Dropout


def kept(shape, rate, seed, number=0):
    """Which numbers are kept, by the definition in the docstring."""
    first = np.uint64((seed + number * 0x9E3779B9) % 2**32)
    x = ((np.arange(np.prod(shape), dtype=np.uint64) + first) % 2**32).astype(np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x = ((x ^ (x >> np.uint32(shift))).astype(np.uint64) * np.uint64(factor) % 2**32).astype(np.uint32)
    return (x >= round(rate * 2**32)).reshape(shape)


def drops(fused):
    return pytest.param(fused, marks=needs_kernels) if fused else fused


def seed_of(number):
    return to_device(np.array([number], np.int32))


@pytest.mark.parametrize("fused", [False, drops(True)])
@pytest.mark.parametrize(("rate", "seed", "number"), [(0.01, 0, 0), (0.5, -1, 1), (0.9, 2**31 - 1, 7)])
def test_the_dropped_numbers_follow_the_stream(rate, seed, number, fused):
    layer = Dropout(rate, number)
    if fused:
        fuse_layers(layer)
    x = np.random.default_rng(0).standard_normal((61, 67)).astype(np.float32)
    scale = kept(x.shape, rate, seed, number) / (1.0 - rate)
    assert abs(scale.mean() - 1.0) < 0.1

    seed = seed_of(seed)
    gradient = ms.grad(lambda x: (layer(x, seed) ** 2).sum())(to_device(x))
    np.testing.assert_allclose(layer(to_device(x), seed).asnumpy(), x * scale, rtol=1e-6)
    np.testing.assert_allclose(gradient.asnumpy(), 2.0 * x * scale**2, rtol=1e-5)
