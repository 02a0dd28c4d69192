"""Categorical distributions of the return over equally spaced atoms (compiled)."""

from __future__ import annotations

from minding.engine.process.runtime import ms, ops


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
