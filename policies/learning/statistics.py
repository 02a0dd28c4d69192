"""Statistics of gradients and of the steps that they cause (compiled)."""

from __future__ import annotations

from typing import Any

from minding.engine.process.runtime import ms, ops
from minding.policies.ops import lean
from minding.policies.ops.order import after

STATISTICS = ("grad_norm", "grad_zero", "grad_nonfinite", "weight_norm", "update_ratio")
"""Statistics of a group of parameters: global norm of the gradients before scaling, shares of the gradients that are 0
and that are NaN or infinite, global norm of the parameters before the step, and ratio of the step's global norm to it
(0 if the parameters are all 0)."""


def joined(zero, values):
    """All entries of a tuple of float32 arrays as one array ``(n + 1,)``, preceded by `zero`, float32 (1,), so that
    even a single array is copied."""
    flat: Any = (zero,)
    for k in range(len(values)):
        flat = (*flat, ops.Reshape()(lean.item(values, k), (-1,)))
    return ops.Concat()(flat)


def joined_after(zero, params, done):
    """`joined` parameters, read after `done`. Each one waits on its own: MindSpore ignores that a tuple has to wait."""
    read: Any = ()
    for k in range(len(params)):
        read = (*read, after(lean.item(params, k), done))
    return joined(zero, read)


def step_statistics(grads, before, params):
    """`STATISTICS` of a step, followed by a 1 that counts the step: float32 (6,).

    Args:
      grads: `joined` gradients.
      before, params: `joined` parameters before the step and after it.
    """
    count = grads.shape[0] - 1
    zeros = (_total(ops.Equal()(grads, 0.0)) - 1.0) / count
    odd = _total(ops.LogicalNot()(ops.IsFinite()(grads))) / count
    weight, step = _norm(before), _norm(params - before)
    return lean.stacked((_norm(grads), zeros, odd, weight, ops.DivNoNan()(step, weight), ops.OnesLike()(weight)))


def _norm(x):
    return ops.Sqrt()(2.0 * ops.L2Loss()(x))


def _total(flags):
    return ops.ReduceSum()(ops.Cast()(flags, ms.float32), 0)
