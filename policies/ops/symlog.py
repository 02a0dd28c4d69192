"""Targets of any size for networks: the symmetric logarithm, and regression by classification (compiled).

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104, eq. 1 and section "Critic learning".
"""

from __future__ import annotations

from minding.engine.process.runtime import ops


def symlog(x):
    """sign(x) log(1 + |x|), float32 of any shape."""
    # Uses only operators that can be exported. NaN stays NaN, which ReLU alone would hide.
    above = ops.ReLU()(x)
    return ops.Log()(1.0 + above) - ops.Log()(1.0 + (above - x))


def symexp(x):
    """sign(x) (exp(|x|) - 1), the inverse of `symlog`."""
    return ops.Sign()(x) * (ops.Exp()(ops.Abs()(x)) - 1.0)


def two_hot(x, low, spacing, places):
    """Distributions over equally spaced bins with given means: all probability is on the two nearest bins.

    Args:
      x: the means, float32 (B,); a number beyond the bins counts as the nearest bin.
      low, spacing: the first bin, and the distance between neighboring bins.
      places: float32 (N,), the numbers 0, ..., N - 1.
    Returns:
      float32 (B, N); NaN in rows whose number is not finite.
    """
    last = places.shape[0] - 1.0
    position = (x - low) / spacing
    within = ops.ExpandDims()(ops.clamp(position, 0.0, last), -1)
    # The clamp hides NaN and infinity; the last term is NaN for them, and otherwise 0.
    return ops.ReLU()(1.0 - ops.Abs()(within - places)) + ops.ExpandDims()(position - position, -1)
