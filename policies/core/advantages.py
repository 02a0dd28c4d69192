"""Advantages and returns of the rows of a batch, before they go into the compiled update (NumPy)."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array


def moments(x: Array, counted: Array | None = None) -> tuple[Array, Array]:
    """Mean and deviation of each row of x ``(K, R)``, each ``(K, 1)``, over what counts; 0 where nothing does.

    Args:
      x: float32 (K, R).
      counted: bool (K, R); None: everything counts.
    """
    if counted is None:
        return x.mean(axis=1, keepdims=True), x.std(axis=1, keepdims=True)
    count = np.maximum(counted.sum(axis=1, keepdims=True), 1).astype(np.float32)
    mean = np.where(counted, x, 0.0).sum(axis=1, keepdims=True) / count
    deviation = np.where(counted, x - mean, 0.0)
    return mean, np.sqrt(np.square(deviation).sum(axis=1, keepdims=True) / count)


def standardized(x: Array, counted: Array | None = None) -> Array:
    """Each row of x ``(K, R)`` with zero mean and unit variance; for `counted` see `moments`."""
    # What becomes infinite here makes the loss so, which is an error that says more.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = moments(x, counted)
        scaled: Array = (x - mean) / (std + 1e-8)
    return scaled
