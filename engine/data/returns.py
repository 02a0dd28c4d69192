"""Advantages, returns and their errors over rollouts (NumPy, float64 inside); ends, time limits and reset rows are kept
apart.

Time is the first axis, and any axes may follow: ``(T, N)`` for N environments, ``(T, N, M)`` for the M agents of each.
In the shapes below ``...`` stands for the axes after N. Ends, and a reward that a team shares, may lack the trailing
axes: they then hold for all agents of an environment.
"""

import numpy as np

from minding.engine.data.rollout import Rollout
from minding.engine.errors import ChainError, ShapeError
from minding.engine.types import Array

RESCALE = 1e-3
"""The epsilon of `rescaled`."""


def reverse_scan(delta: Array, decay: Array) -> Array:
    """Solves y_t = delta_t + decay_t * y_{t+1} with y_T = 0 by doubling shifts, in O(log T) array operations.

    Args:
      delta, decay: float (T, N, ...).

    Returns:
      y, float64 (T, N, ...).
    """
    y, c = delta.astype(np.float64), decay.astype(np.float64)
    shift = 1
    while shift < len(y):
        y[:-shift] += c[:-shift] * y[shift:]
        c[:-shift] = c[:-shift] * c[shift:]
        shift *= 2
    return y


def outcome(ended: Array, cut: Array) -> tuple[Array, Array]:
    """The outcome of the trajectory that each row belongs to.

    Args:
      ended: bool (T, N), true where an episode ended.
      cut: bool (T, N), true where the next row does not continue this trajectory.

    Returns:
      (rows of an episode whose end is among the rows, rows of an episode that continues after them), bool (T, N) each;
      rows of an abandoned episode are in neither.
    """
    steps = len(cut)
    # The row at which each trajectory stops; T if it does not.
    stop = np.where(cut, np.arange(steps)[:, None], steps)
    stop = np.minimum.accumulate(stop[::-1])[::-1]
    running: Array = stop == steps
    over: Array = ~running & np.take_along_axis(ended, np.minimum(stop, steps - 1), axis=0)
    return over, running


def gae(
    reward: Array, value: Array, next_value: Array, terminated: Array, cut: Array, *, gamma: float, gae_lambda: float
) -> Array:
    """Generalized advantage estimation (Schulman et al., 2016, eq. 16; https://arxiv.org/abs/1506.02438).

        delta_t = r_t + gamma * (1 - terminated_t) * V(s'_t) - V(s_t)
        A_t = delta_t + gamma * lambda * (1 - cut_t) * A_{t+1}

    Args:
      reward: float32 (T, N, ...) or (T, N), reward of the step taken at t.
      value: float32 (T, N, ...), V(s_t).
      next_value: float32 (T, N, ...), value of the true successor: of the final observation where an episode ended.
      terminated: bool (T, N, ...) or (T, N), true only at a true end (no bootstrap); a time limit sets `cut`, not this.
      cut: bool (T, N, ...) or (T, N), true where the next row does not continue this trajectory.

    Returns:
      Advantages, float32 (T, N, ...).
    """
    if next_value.shape != value.shape:
        raise ShapeError(f"gae: next_value has shape {next_value.shape}, value has {value.shape}; expected the same")
    reward, terminated, cut = (
        over_agents(array, value.shape, f"gae: {name}")
        for name, array in (("reward", reward), ("terminated", terminated), ("cut", cut))
    )
    delta = reward + gamma * np.where(terminated, 0.0, next_value.astype(np.float64)) - value
    return reverse_scan(delta, np.where(cut, 0.0, gamma * gae_lambda)).astype(np.float32)


def over_agents(array: Array, shape: tuple[int, ...], what: str) -> Array:
    """Gives an array ``(T, N, ...)`` or ``(T, N)`` the trailing axes of `shape`: a value of an environment then holds
    for each of its agents."""
    if array.shape == shape:
        return array
    if array.shape != shape[:2]:
        either = f"{shape}" if shape == shape[:2] else f"{shape} or {shape[:2]}"
        raise ShapeError(f"{what} has shape {array.shape}; expected {either}, the (T, N) of the values first")
    return np.broadcast_to(array.reshape(*shape[:2], *[1] * (len(shape) - 2)), shape)


def nstep(reward: Array, cut: Array, *, n: int, gamma: float) -> tuple[Array, Array, Array]:
    """n-step returns within each trajectory (Sutton, 1988; Hessel et al., 2018, https://arxiv.org/abs/1710.02298).

        R_t = sum_{i<k} gamma^i r_{t+i},   k = min(n, steps left in the trajectory and in the arrays)

    The target is ``R_t + gamma^k * V(s_{t+k})``, so successor, `terminated` and discount are taken from step t + k - 1.

    Args:
      reward: float32 (T, N, ...).
      cut: bool (T, N, ...) or (T, N), true where the next row does not continue this trajectory.

    Returns:
      (return float32, row of the last step summed int64, discount gamma^k float32), each (T, N, ...).
    """
    steps, cut = len(reward), over_agents(cut, reward.shape, "nstep: cut")
    # Number of steps summed so far, and whether the next one continues them.
    total, summed, going = np.zeros(reward.shape), np.zeros(reward.shape, np.int64), np.ones(reward.shape, bool)
    for i in range(min(n, steps)):
        going = going[: steps - i]
        total[: steps - i] += np.where(going, gamma**i * reward[i:], 0.0)
        summed[: steps - i] += going
        going = going & ~cut[i:]
    last = np.arange(steps).reshape(-1, *[1] * (reward.ndim - 1)) + summed - 1
    discounts = np.array([gamma**k for k in range(min(n, steps) + 1)], np.float32)
    return total.astype(np.float32), last, discounts[summed]


def nstep_errors(rollout: Rollout, *, n: int, gamma: float, rescale: bool = False) -> Array:
    """Absolute n-step errors of the action values that were recorded while collecting.

        e_t = |h(R_t + gamma^k (1 - terminated) h^-1(V(s_{t+k}))) - Q(s_t, a_t)|,   k <= n within trajectory and rollout

    Returns:
      float32 (T, N).
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
