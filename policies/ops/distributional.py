"""Distributions of the return: probabilities of equally spaced atoms, and quantiles (compiled)."""

import functools
from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.kernels import kernel, usable


def moved(reward, decay, low, spacing, places):
    """Positions of the atoms of a support after a step, R + d (low + j spacing), in atoms counted from `low`.

    The computation does not subtract large, nearly equal returns from each other.

    Args:
      reward, decay: R and d, float32 (B,).
      low, spacing: lower end and spacing of the support, Python numbers.
      places: j, float32 (N,).
    Returns:
      float32 (B, N).
    """
    first = (reward - (1.0 - decay) * low) / spacing
    return ops.ExpandDims()(first, -1) + ops.ExpandDims()(decay, -1) * places


def project(probability, positions, places):
    """Moves probabilities onto the atoms of a support, each to its two neighbors (Bellemare et al., 2017,
    https://arxiv.org/abs/1707.06887, eq. 7).

        m_i = sum_j [1 - |clip(b_j, 0, N - 1) - i|]_0^1 p_j

    Args:
      probability: float32 (B, M), p; each row sums to 1.
      positions: float32 (B, M), b: position of each probability, in atoms counted from the first atom of the support,
        ``(x - low) / (high - low) * (N - 1)``.
      places: float32 (N,), the numbers 0, ..., N - 1.

    Returns:
      float32 (B, N), m, with the same row sums; NaN in rows with a position that is not finite.
    """
    last = places.shape[0] - 1.0
    within = ops.ExpandDims()(ops.clamp(positions, 0.0, last), 1)
    share = ops.ReLU()(1.0 - ops.Abs()(within - ops.ExpandDims()(places, 1)))
    moved = ops.ReduceSum()(share * ops.ExpandDims()(probability, 1), -1)
    # The clamp hides NaN and infinity; this term is NaN for them, and otherwise 0.
    return moved + ops.ReduceSum(True)(positions - positions, -1)


def beyond(probability, positions, places):
    """The probability beyond the ends of a support, which `project` moves to the ends: float32 (B,).

    Positions up to a thousandth of an atom beyond an end are attributed to rounding. Arguments as in `project`.
    """
    last = places.shape[0] - 1.0
    outside = ops.Abs()(positions - 0.5 * last) > 0.5 * last + 1e-3
    return ops.ReduceSum()(probability * ops.Cast()(outside, ms.float32), -1)


def cross_entropy(logits, target):
    """Cross-entropy and relative entropy of predicted distributions.

        H(m, p) = -sum_i m_i log p_i,   KL(m || p) = H(m, p) + sum_i m_i log m_i,   p = softmax(logits)

    Args:
      logits: float32 (B, N), with gradient.
      target: float32 (B, N), m; each row sums to 1. No gradient flows into it.

    Returns:
      (cross-entropy, with the gradient p - m; relative entropy, at least 0, without gradient), float32 (B,) each.
    """
    target = ops.stop_gradient(target)
    loss = -ops.ReduceSum()(target * ops.LogSoftmax(-1)(logits), -1)
    # The bound makes 0 log 0 = 0.
    negentropy = ops.ReduceSum()(target * ops.Log()(ops.Maximum()(target, 1e-30)), -1)
    return loss, ops.ReLU()(ops.stop_gradient(loss) + negentropy)


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
    kernel computes all pairs."""

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

    return kernel("quantile_huber", lambda quantiles, levels, target, kappa: ((quantiles[0],), quantiles), 2, gradient)
