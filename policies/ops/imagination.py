"""Returns of imagined trajectories, and the scale in which they are learned (compiled).

Hafner et al., 2023 (DreamerV3), https://arxiv.org/abs/2301.04104, section "Actor critic learning".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minding.engine.process.runtime import ops
from minding.policies.ops import lean


def lambda_returns(reward, decay, value, lam):
    """Returns of up to H steps from every state of a trajectory, as lambda-weighted means over the number of steps:

        R_t = r_{t+1} + d_{t+1} ((1 - lambda) v_{t+1} + lambda R_{t+1}),   R_H = v_H

    Args:
      reward: float32 (H, N), rewards r of the steps that lead to the states 1 to H.
      decay: float32 (H, N), d of these states: gamma times the probability that the episode continues after them.
      value: float32 (H, N), v of these states.
      lam: lambda, a Python number.
    Returns:
      Returns of the states 0 to H - 1, float32 (H, N). Gradients flow through all arguments.
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
    """The weight of each state: the discounted probability that the trajectory reaches it.

        w_0 = c_0,   w_t = w_{t-1} d_t

    Args:
      going: float32 (N,), c_0: 0 if the episode ended in the state from which imagination starts, else 1.
      decay: float32 (H, N), d of the states 1 to H.
    Returns:
      Weights of the states 0 to H - 1, float32 (H, N).
    """
    weight = ops.ExpandDims()(going, 0)
    made: Any = (weight,)
    for t in range(decay.shape[0] - 1):
        weight = weight * lean.part(decay, t, 1)
        made = (*made, weight)
    return made[0] if decay.shape[0] == 1 else ops.Concat(0)(made)


def percentiles(x, shares):
    """Percentiles of all entries of x (B,), interpolated linearly as in NumPy: float32 (P,).

    Args:
      x: float32 (B,).
      shares: the P percentiles as numbers in [0, 1].
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
    """Updates the running sums of two percentiles and of their weights: float32 (3,) before and after.

    Each update has `decay` times the weight of the next one. The running means are the first two numbers divided by the
    third, so that they are not biased towards 0 after the first updates; see `width`.

    Args:
      before: float32 (3,), the sums before the update.
      low_high: float32 (2,), the two percentiles.
      decay: a Python number in [0, 1).
    """
    both = ops.Concat(0)((low_high, ops.OnesLike()(lean.part(low_high, 0, 1))))
    return decay * before + (1.0 - decay) * both


def width(running, floor):
    """The distance between the two running means of `running_range`, at least `floor`: float32 (1,)."""
    low, high, count = (lean.part(running, k, 1) for k in range(3))
    return ops.Maximum()((high - low) / count, floor)


NO_RANGE = np.zeros(3, np.float32)
"""The sums of `running_range` before the first update."""
