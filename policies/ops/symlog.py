"""Targets of any size for networks: the symmetric logarithm, and regression by classification (compiled).

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104, eq. 1 and section "Critic learning".
"""

from __future__ import annotations

from minding.engine.process.runtime import ops


def symlog(x):
    """sign(x) log(1 + |x|), float32 of any shape."""
    # Of operators that can be exported; what is not a number stays so, which ReLU alone would hide.
    above = ops.ReLU()(x)
    return ops.Log()(1.0 + above) - ops.Log()(1.0 + (above - x))


def symexp(x):
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`."""
    return ops.Sign()(x) * (ops.Exp()(ops.Abs()(x)) - 1.0)


def two_hot(x, low, spacing, places):
    """Distributions over equally spaced bins whose means are numbers: all of the weight is at the two nearest bins.

    Args:
      x: float32 (B,); beyond the bins it counts as the last one.
      low, spacing: the first bin, and the distance between two.
      places: float32 (N,), the numbers 0, ..., N - 1.
    Returns:
      float32 (B, N); NaN in rows of a number that is not finite.
    """
    last = places.shape[0] - 1.0
    position = (x - low) / spacing
    within = ops.ExpandDims()(ops.clamp(position, 0.0, last), -1)
    # Bounds hide what is not a number, and infinity.
    return ops.ReLU()(1.0 - ops.Abs()(within - places)) + ops.ExpandDims()(position - position, -1)
