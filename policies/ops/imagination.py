"""Returns of imagined trajectories, and the scale that they are learned in (compiled).

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104, section "Actor critic learning".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minding.engine.process.runtime import ops
from minding.policies.ops import lean


def lambda_returns(reward, decay, value, lam):
    """Returns of H steps from every state, each of which may be the last:

        R_t = r_{t+1} + d_{t+1} ((1 - lambda) v_{t+1} + lambda R_{t+1}),   R_H = v_H

    Args:
      reward: float32 (H, N), r of the states that steps lead to, 1 to H.
      decay: float32 (H, N), d: gamma times the probability that the episode continues from those states.
      value: float32 (H, N), v of those states.
      lam: lambda, a number.
    Returns:
      float32 (H, N), of the states 0 to H - 1. Gradients flow through all arguments.
    """
    steps = reward.shape[0]
    ahead = lean.part(value, steps - 1, 1)
    made: Any = ()
    for k in range(steps):
        t = steps - 1 - k
        mixed = (1.0 - lam) * lean.part(value, t, 1) + lam * ahead
        ahead = lean.part(reward, t, 1) + lean.part(decay, t, 1) * mixed
        made = (ahead, *made)
    return made[0] if steps == 1 else ops.Concat(0)(made)


def reach_weights(going, decay):
    """The weight of each state: the discounted probability that it is reached.

        w_0 = c_0,   w_t = w_{t-1} d_t

    Args:
      going: float32 (N,), c_0: 0 where the state that imagination starts from ended its episode, else 1.
      decay: float32 (H, N), d of the states 1 to H.
    Returns:
      float32 (H, N), of the states 0 to H - 1.
    """
    weight = ops.ExpandDims()(going, 0)
    made: Any = (weight,)
    for t in range(decay.shape[0] - 1):
        weight = weight * lean.part(decay, t, 1)
        made = (*made, weight)
    return made[0] if decay.shape[0] == 1 else ops.Concat(0)(made)


def percentiles(x, shares):
    """Percentiles of all entries of x (B,), interpolated linearly as NumPy does: float32 (P,).

    Args:
      shares: numbers in [0, 1].
    """
    ordered, last = ops.Sort()(x)[0], x.shape[0] - 1
    made: Any = ()
    for share in shares:
        low = math.floor(share * last)
        rest = share * last - low
        below, above = lean.part(ordered, low, 1), lean.part(ordered, min(low + 1, last), 1)
        made = (*made, below + rest * (above - below))
    return ops.Concat(0)(made)


def running_range(before, low_high, decay):
    """The running means of two percentiles, and how much has gone into them: float32 (3,) before and after.

    Each update counts `decay` times what the next one does. The means themselves are the first two numbers divided by
    the third, which keeps the first updates from being drawn to 0; see `width`.
    """
    both = ops.Concat(0)((low_high, ops.OnesLike()(lean.part(low_high, 0, 1))))
    return decay * before + (1.0 - decay) * both


def width(running, floor):
    """The distance between both means of `running_range`, at least `floor`: float32 (1,)."""
    low, high, count = (lean.part(running, k, 1) for k in range(3))
    return ops.Maximum()((high - low) / count, floor)


NO_RANGE = np.zeros(3, np.float32)
"""`running_range` before the first update."""
