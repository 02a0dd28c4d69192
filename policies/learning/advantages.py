"""Advantages and returns of the rows of a batch, before they go into the compiled update (NumPy)."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array


def moments(x: Array, counted: Array | None = None) -> tuple[Array, Array]:
    """Mean and standard deviation of each row of x, each ``(K, 1)``, over the numbers that count.

    Both are 0 for a row in which no number counts. For a row in which a single number counts they are 0 and 1, so that
    standardizing leaves this number unchanged.

    Args:
      x: float32 (K, R).
      counted: bool (K, R), which numbers count; None: all.
    """
    if counted is None:
        mean, deviation = x.mean(axis=1, keepdims=True), x.std(axis=1, keepdims=True)
        number = np.full_like(mean, x.shape[1])
    else:
        number = counted.sum(axis=1, keepdims=True).astype(np.float32)
        divisor = np.maximum(number, 1.0)
        mean = np.where(counted, x, 0.0).sum(axis=1, keepdims=True) / divisor
        distance = np.where(counted, x - mean, 0.0)
        deviation = np.sqrt(np.square(distance).sum(axis=1, keepdims=True) / divisor)
    alone = number == 1
    return np.where(alone, np.float32(0.0), mean), np.where(alone, np.float32(1.0), deviation)


def standardized(x: Array, counted: Array | None = None) -> Array:
    """Each row of x ``(K, R)`` with zero mean and unit variance; for the arguments and for rows with a single number
    that counts, see `moments`."""
    # If a number becomes infinite here, the loss does too, and its error says more.
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = moments(x, counted)
        scaled: Array = (x - mean) / (std + 1e-8)
    return scaled
