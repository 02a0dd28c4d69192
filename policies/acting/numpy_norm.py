"""Layer normalization in NumPy, see `networks.layers`."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array

EPSILON = 1e-5
"""Number that is added to the variance of a row."""


class LayerNorm:
    """Rows ``(..., H)`` with zero mean and unit variance, times `weight` and plus `bias`, both ``(H,)``; see
    `networks.layers`."""

    def __init__(self, weight: Array, bias: Array) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: Array) -> Array:
        return normalize_rows(x, self.weight, self.bias)


def normalize_rows(x: Array, weight: Array, bias: Array) -> Array:
    """Applies `LayerNorm` to x in place."""
    x -= x.mean(axis=-1, keepdims=True)
    x /= np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
    x *= weight
    x += bias
    return x
