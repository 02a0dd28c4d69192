"""Running scale of rewards."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array, StateDict

CLIP = 10.0
"""Bound of scaled rewards, unless ``env.reward_clip`` is set."""


class RewardScaler:
    """Divides rewards by the standard deviation of the discounted return (no mean is subtracted).

        G_t = gamma * G_{t-1} + r_t        (0 where an episode begins)
        r'_t = r_t / sqrt(var(G))

    The variance is taken over all environments and steps so far (Welford's update by batches), and over a return of 0
    in each environment before the first step, because environments that begin with equal rewards would otherwise have
    no spread. While the variance is 0, as before the first reward, rewards pass unchanged.

    Args:
      shape: ``(N,)``, or ``(N, M)`` for rewards of M agents, which share one scale.
      gamma: discount factor of the return, in [0, 1].
    """

    def __init__(self, shape: tuple[int, ...], gamma: float) -> None:
        self._gamma = gamma
        self._returns = np.zeros(shape)
        self._count = self._returns.size
        self._mean = 0.0
        self._squares = 0.0

    @property
    def scale(self) -> float:
        """The number by which rewards are divided now."""
        return float(np.sqrt(self._squares / self._count)) or 1.0

    def __call__(self, reward: Array, valid: Array | None) -> Array:
        """Adds the rewards of one step to the statistics and scales them.

        Args:
          reward: float32 ``(N,)`` or ``(N, M)``.
          valid: bool ``(N,)`` or None; rows that are not valid are left out of the statistics and begin a new return.
        Returns:
          The scaled rewards, float32 of the same shape.
        """
        self._returns *= self._gamma
        self._returns += reward
        if valid is not None:
            self._returns[~valid] = 0.0
        returns = self._returns if valid is None else self._returns[valid]
        self._update(returns if returns.ndim == 1 else returns.ravel())
        return (reward / self.scale).astype(np.float32)

    def forget(self, envs: Array) -> None:
        """Begins a new return in the environments of the mask or index array `envs`, as for a new episode."""
        self._returns[envs] = 0.0

    def state_dict(self) -> StateDict:
        return {
            "returns": self._returns.copy(),
            "count": self._count,
            "mean": self._mean,
            "squares": self._squares,
        }

    def load_state_dict(self, state: StateDict) -> None:
        self._returns[:] = state["returns"]
        self._count = int(state["count"])
        self._mean = float(state["mean"])
        self._squares = float(state["squares"])

    def _update(self, returns: Array) -> None:
        if not len(returns):
            return
        total = self._count + len(returns)
        mean = float(returns.mean())
        delta = mean - self._mean
        self._squares += float(((returns - mean) ** 2).sum()) + delta**2 * self._count * len(returns) / total
        self._mean += delta * len(returns) / total
        self._count = total
