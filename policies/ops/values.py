"""Pieces of value losses (compiled)."""

from __future__ import annotations

from minding.engine.data.returns import RESCALE
from minding.engine.process.runtime import ops
from minding.policies.ops import lean


def chosen_value(q, action):
    """Q(s, a) of the chosen action: q float32 (B, A), action int (B,) -> float32 (B,); also with a leading axis T."""
    return ops.Squeeze(-1)(ops.GatherD()(q, q.ndim - 1, ops.ExpandDims()(action, -1)))


def chosen_atoms(atoms, action):
    """The atoms of the chosen action: float32 (B, A, N), int32 (B,) -> float32 (B, N)."""
    rows, _, count = atoms.shape
    index = ops.BroadcastTo((rows, 1, count))(ops.Reshape()(action, (rows, 1, 1)))
    return ops.Squeeze(1)(ops.GatherD()(atoms, 1, index))


def half_square(error):
    """e^2/2 for any shape, written so that the gradient, e, takes one kernel."""
    constant = ops.stop_gradient(error)
    return constant * (error - 0.5 * constant)


def smaller(a, b):
    """min(a, b) for any shape, NaN if one of them is NaN. The gradient flows to b if both are equal, and takes half as
    many kernels as the gradient of `ops.minimum`."""
    first = ops.LogicalOr()(a < b, a != a)
    return ops.select(ops.stop_gradient(first), a, b)


def huber(error):
    """Huber loss with threshold 1 (Huber, 1964): e^2/2 where |e| <= 1, else |e| - 1/2; any shape.

    Written as ``c (e - c/2)``, where c is e clipped to +-1 and treated as a constant, so that c is also the gradient.
    This takes a third of the kernels of a gradient through branches.
    """
    clipped = ops.stop_gradient(ops.clamp(error, -1.0, 1.0))
    return clipped * (error - 0.5 * clipped)


def rescaled(x):
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al., 2018, https://arxiv.org/abs/1805.11593, section 3.2);
    float32 of any shape. Written without a difference of nearly equal numbers."""
    return x / (ops.Sqrt()(ops.Abs()(x) + 1.0) + 1.0) + RESCALE * x


def unscaled(x):
    """The inverse of `rescaled`, ``sign(x) (((sqrt(1 + 4 eps u) - 1) / (2 eps))^2 - 1)`` with ``u = |x| + 1 + eps``."""
    u = ops.Abs()(x) + (1.0 + RESCALE)
    root = 2.0 * u / (ops.Sqrt()(4.0 * RESCALE * u + 1.0) + 1.0)
    return ops.Sign()(x) * (root * root - 1.0)


def accumulated(x, factor):
    """The sums y_t = x_t + factor_t y_{t+1} over time, where y of the last row is x; arguments float32 (T, ...).

    This takes log2(T) rounds, each of which doubles the reach of the sums. Rows of zeros at the end leave the other
    rows bit-identical.
    """
    steps, reach = x.shape[0], 1
    while reach < steps:
        x = x + factor * _ahead(x, reach)
        factor = factor * _ahead(factor, reach)
        reach = 2 * reach
    return x


def _ahead(x, count):
    """x_{t + count}, (T, ...), with zeros after the last row."""
    return ops.Concat(0)((lean.part(x, count, x.shape[0] - count), ops.ZerosLike()(lean.part(x, 0, count))))


def value_loss(q, action, target):
    """Huber loss between chosen values and targets.

    Args:
      q: float32 (B, A), or (T, B, A).
      action: int32 (B,), or (T, B).
      target: float32, shaped like `action`; no gradient flows into it.

    Returns:
      (loss, chosen value, absolute error), each float32, shaped like `action`.
    """
    chosen = chosen_value(q, action)
    error = chosen - ops.stop_gradient(target)
    return huber(error), chosen, ops.Abs()(ops.stop_gradient(error))
