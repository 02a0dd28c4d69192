"""Errors of action values over rollouts (NumPy, float64 inside), used as priorities of newly collected rows."""

from __future__ import annotations

import numpy as np

from minding.engine.data.returns import nstep
from minding.engine.data.rollout import Rollout
from minding.engine.errors import ChainError
from minding.engine.types import Array

RESCALE = 1e-3
"""The epsilon of `rescaled`."""


def nstep_errors(rollout: Rollout, *, n: int, gamma: float, rescale: bool = False) -> Array:
    """Absolute n-step errors of the action values that were recorded while collecting.

        e_t = |h(R_t + gamma^k (1 - terminated) h^-1(V(s_{t+k}))) - Q(s_t, a_t)|,   k <= n within trajectory and rollout

    Args:
      rollout: with `q_value` and `value` in its record: Q of the action taken and V, the highest Q.
      n: steps of the return.
      gamma: discount.
      rescale: whether action values estimate rescaled returns, see `rescaled`; without it h is the identity.

    Returns:
      float32 (T, N).

    Raises:
      ChainError: if no values were recorded, or rewards are n-step returns already.
    """
    if rollout.bootstrap_row is not None:
        raise ChainError(
            "nstep_errors sums the rewards of single steps, and ctx.trajectories holds n-step returns: put "
            "priority_calculator before nstep_reward_enhancer"
        )
    if "q_value" not in rollout.record:
        raise ChainError(
            "nstep_errors needs the values of the actions taken, but the collector's policy does not record them in "
            "ctx.trajectories; use one that does, such as R2D2 with policy.other.replay=prioritized"
        )
    total, last, discount = nstep(rollout.reward, rollout.cut(), n=n, gamma=gamma)
    step = last, np.arange(rollout.shape[1])
    following = rollout.next_value()[step].astype(np.float64)
    going = np.where(rollout.terminated[step], 0.0, discount)
    target = total + going * (unscaled(following) if rescale else following)
    error: Array = np.abs((rescaled(target) if rescale else target) - rollout.record["q_value"])
    return error.astype(np.float32)


def rescaled(x: Array) -> Array:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x (Pohlen et al., 2018, https://arxiv.org/abs/1805.11593, section 3.2);
    any shape."""
    y: Array = np.sign(x) * (np.sqrt(np.abs(x) + 1.0) - 1.0) + RESCALE * x
    return y


def unscaled(x: Array) -> Array:
    """The inverse of `rescaled`, for float64."""
    root = (np.sqrt(1.0 + 4.0 * RESCALE * (np.abs(x) + 1.0 + RESCALE)) - 1.0) / (2.0 * RESCALE)
    y: Array = np.sign(x) * (root**2 - 1.0)
    return y
