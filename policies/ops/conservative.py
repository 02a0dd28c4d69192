"""The penalty of conservative Q-learning (compiled).

Kumar et al., 2020, https://arxiv.org/abs/2006.04779, eq. 4 and appendix F.
"""

from __future__ import annotations

import math

from minding.engine.process.runtime import ops
from minding.policies.ops import lean


def log_sum_exp(x):
    """log sum_j exp(x_j) along the last axis, in a form that does not overflow: (B, A) -> (B,)."""
    highest = ops.stop_gradient(lean.largest(x))
    return ops.Log()(ops.ReduceSum()(ops.Exp()(x - ops.ExpandDims()(highest, -1)), -1)) + highest


def log_integral(q, log_density, count):
    """An estimate of the logarithm of the integral of exp Q(s, a) over a, from actions drawn with known densities:

        log 1/M sum_j exp(Q(s, a_j) - log p_j(a_j))

    Args:
      q: float32 (M, B), the values of M actions.
      log_density: float32 (M, B), log p_j(a_j) of these actions; no gradient flows into it.
      count: M, a Python number.
    Returns:
      float32 (B,).
    """
    weighed = ops.Transpose()(q - ops.stop_gradient(log_density), (1, 0))
    return log_sum_exp(weighed) - math.log(count)
