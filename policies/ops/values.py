"""Pieces of value losses (compiled)."""

from __future__ import annotations

from minding.engine.runtime import ops


def chosen_value(q, action):
    """Q(s, a) of the chosen action; q float32 (B, A), action int (B,) -> float32 (B,)."""
    return ops.gather_elements(q, 1, action.reshape((-1, 1))).reshape((-1,))


def huber(error):
    """Huber loss with threshold 1 (Huber, 1964): e^2/2 where |e| <= 1, else |e| - 1/2; any shape.

    Written as ``c (|e| - c/2)`` with ``c = min(|e|, 1)``.
    """
    size = ops.abs(error)
    clipped = ops.minimum(size, 1.0)
    return clipped * (size - 0.5 * clipped)
