"""Categorical distributions of the return over equally spaced atoms (compiled)."""

from __future__ import annotations

from minding.engine.process.runtime import ms, ops


def moved(reward, decay, low, spacing, places):
    """Where the atoms of a support lie after a step, R + d (low + j spacing), counted in atoms from `low` on.

    No two returns that are large and alike are subtracted from each other.

    Args:
      reward, decay: R and d, float32 (B,).
      low, spacing: of the support, numbers.
      places: j, float32 (N,).
    Returns:
      float32 (B, N).
    """
    first = (reward - (1.0 - decay) * low) / spacing
    return ops.ExpandDims()(first, -1) + ops.ExpandDims()(decay, -1) * places


def project(probability, positions, places):
    """Moves probabilities onto the atoms of a support, each to its two neighbours (Bellemare et al., 2017,
    https://arxiv.org/abs/1707.06887, eq. 7).

        m_i = sum_j [1 - |clip(b_j, 0, N - 1) - i|]_0^1 p_j

    Args:
      probability: float32 (B, M), rows with the sum 1.
      positions: float32 (B, M), b: where each of them lies, counted in atoms of the support from its first one,
        ``(x - low) / (high - low) * (N - 1)``.
      places: float32 (N,), the numbers 0, ..., N - 1.

    Returns:
      float32 (B, N), with the same sum; NaN in rows with a position that is not finite.
    """
    last = places.shape[0] - 1.0
    within = ops.ExpandDims()(ops.clamp(positions, 0.0, last), 1)
    share = ops.ReLU()(1.0 - ops.Abs()(within - ops.ExpandDims()(places, 1)))
    moved = ops.ReduceSum()(share * ops.ExpandDims()(probability, 1), -1)
    # Bounds hide what is not a number, and infinity.
    return moved + ops.ReduceSum(True)(positions - positions, -1)


def beyond(probability, positions, places):
    """The probability that lies beyond the ends of a support, which `project` moves there: float32 (B,).

    A thousandth of an atom is rounding. Arguments as in `project`.
    """
    last = places.shape[0] - 1.0
    outside = ops.Abs()(positions - 0.5 * last) > 0.5 * last + 1e-3
    return ops.ReduceSum()(probability * ops.Cast()(outside, ms.float32), -1)


def cross_entropy(logits, target):
    """Cross-entropy and relative entropy of predicted distributions.

        H(m, p) = -sum_i m_i log p_i,   KL(m || p) = H(m, p) + sum_i m_i log m_i,   p = softmax(logits)

    Args:
      logits: float32 (B, N), which gradients flow into.
      target: float32 (B, N), m, rows with the sum 1; no gradient flows into it.

    Returns:
      (cross-entropy, which has the gradient p - m; relative entropy, at least 0, without gradient), float32 (B,) each.
    """
    target = ops.stop_gradient(target)
    loss = -ops.ReduceSum()(target * ops.LogSoftmax(-1)(logits), -1)
    # 0 log 0 = 0.
    negentropy = ops.ReduceSum()(target * ops.Log()(ops.Maximum()(target, 1e-30)), -1)
    return loss, ops.ReLU()(ops.stop_gradient(loss) + negentropy)
