"""Quantile regression (compiled)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.kernels import kernel, usable


def midpoints(count: int) -> Array:
    """The levels (2 i + 1) / (2 N) of N quantiles with equal shares (Dabney et al., 2018, lemma 2): float32 (N,)."""
    return ((2.0 * np.arange(count) + 1.0) / (2.0 * count)).astype(np.float32)


def quantile_huber(quantiles, levels, target, kappa):
    """Quantile Huber loss between quantiles and samples (Dabney et al., 2018, https://arxiv.org/abs/1710.10044, eq. 9
    and 10):

        L_b = sum_i mean_j |tau_i - 1{u_ij < 0}| H(u_ij),   u_ij = target_j - quantile_i
        H(u) = u^2/2 where |u| <= kappa, else kappa (|u| - kappa/2)

    The slope, -mean_j |tau_i - 1{u < 0}| clip(u, -kappa, kappa), is computed with the loss, so that the gradient needs
    no kernel over pairs.

    Args:
      quantiles: float32 (B, N), with gradient.
      levels: float32 (N,) or (B, N), tau of each quantile.
      target: float32 (B, M), samples or equally likely atoms; no gradient flows into them.
      kappa: Python number above 0.

    Returns:
      float32 (B,).
    """
    fixed = ops.stop_gradient(quantiles)
    error = ops.ExpandDims()(ops.stop_gradient(target), 1) - ops.ExpandDims()(fixed, 2)
    levels = ops.ExpandDims()(levels, -1)
    slope = ops.clamp(error, -kappa, kappa)
    weighted = ops.Select()(error < 0.0, (1.0 - levels) * slope, levels * slope)
    loss = ops.ReduceMean()(weighted * (error - 0.5 * slope), -1)
    # The second term is 0, but its gradient is not.
    return ops.ReduceSum()(loss - ops.ReduceMean()(weighted, -1) * (quantiles - fixed), -1)


class QuantileLoss(nn.Cell):
    """Quantile Huber loss between the quantiles of chosen actions and the target's, see `quantile_huber`; on CPU one
    kernel computes all pairs.

    Args:
      kappa: Python number above 0.
    """

    def __init__(self, kappa: float) -> None:
        super().__init__()
        self.kappa = float(kappa)
        self.limit = ms.Tensor(np.float32(kappa))
        self.fused = _fused_huber() if usable() else None

    def construct(self, quantiles, levels, target):
        """Returns (loss, value, priority), each float32 (B,). The priority is the absolute error of the mean. The loss
        would not do as a priority: it is above 0 even for correct quantiles, so rows would be drawn for their noise."""
        if self.fused is not None:
            loss = self.fused(quantiles, levels, target, self.limit)[0]
        else:
            loss = quantile_huber(quantiles, levels, target, self.kappa)
        value = ops.ReduceMean()(quantiles, -1)
        error = ops.ReduceMean()(target, -1) - value
        return loss, value, ops.Abs()(ops.stop_gradient(error))


@functools.cache
def _fused_huber() -> Any:
    """The primitive ``(quantiles, levels, target, kappa) -> loss (B,), its slopes (B, N)``, with the gradient of the
    loss with respect to the quantiles."""

    def gradient(quantiles, levels, target, kappa, out, dout):
        zeros = ops.ZerosLike()
        return ops.ExpandDims()(dout[0], -1) * out[1], zeros(levels), zeros(target), zeros(kappa)

    return kernel(
        "quantile_huber",
        lambda quantiles, levels, target, kappa: ((quantiles[0],), quantiles),
        lambda quantiles, levels, target, kappa: (quantiles, quantiles),
        gradient,
    )
