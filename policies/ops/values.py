"""Pieces of value losses (compiled)."""

from __future__ import annotations

from minding.engine.process.runtime import ops


def chosen_value(q, action):
    """Q(s, a) of the chosen action; q float32 (B, A), action int (B,) -> float32 (B,)."""
    return ops.squeeze(ops.gather_elements(q, 1, ops.expand_dims(action, -1)), -1)


def chosen_atoms(atoms, action):
    """The atoms of the chosen action; float32 (B, A, N), int32 (B,) -> float32 (B, N)."""
    rows, _, count = atoms.shape
    index = ops.BroadcastTo((rows, 1, count))(ops.Reshape()(action, (rows, 1, 1)))
    return ops.Squeeze(1)(ops.GatherD()(atoms, 1, index))


def half_square(error):
    """e^2/2, any shape; written so that the gradient, e, is one kernel."""
    constant = ops.stop_gradient(error)
    return constant * (error - 0.5 * constant)


def smaller(a, b):
    """min(a, b), NaN if one of them is, any shape; the gradient goes to b where both are equal, and takes half the
    kernels of that of `ops.minimum`."""
    first = ops.LogicalOr()(a < b, a != a)
    return ops.select(ops.stop_gradient(first), a, b)


def huber(error):
    """Huber loss with threshold 1 (Huber, 1964): e^2/2 where |e| <= 1, else |e| - 1/2; any shape.

    Written as ``c (e - c/2)`` with ``c`` = e clipped to +-1, which is also the gradient, and a constant to it: a third
    of the kernels that the gradient of the branches takes.
    """
    clipped = ops.stop_gradient(ops.clamp(error, -1.0, 1.0))
    return clipped * (error - 0.5 * clipped)


def value_loss(q, action, target):
    """Huber loss between chosen values and targets.

    Args:
      q: float32 (B, A); action: int32 (B,); target: float32 (B,), no gradient flows into it.

    Returns:
      (loss, chosen value, size of the error), each float32 (B,).
    """
    chosen = chosen_value(q, action)
    error = chosen - ops.stop_gradient(target)
    return huber(error), chosen, ops.Abs()(ops.stop_gradient(error))
