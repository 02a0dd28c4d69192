"""BitFlip: reach a pattern of bits, with a reward that gives no hint on the way."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from minding.engine.types import Array


class BitFlip(gymnasium.Env[dict[str, Array], int]):  # type: ignore[misc]
    """N bits; each action flips one of them (Andrychowicz et al., 2017, https://arxiv.org/abs/1707.01495, section 3.1).

    Start and goal are random and differ. A step costs 1 unless it reaches the goal, which ends the episode; episodes
    are truncated after N steps. As an environment with goals it has `compute_reward` and `compute_terminated`, which
    take one goal or several.

    Observation: a Dict of `observation`, `achieved_goal` (the bits, both times) and `desired_goal`, float32 ``(N,)``.

    Args:
      bits: number of bits, N.
    """

    def __init__(self, bits: int = 8) -> None:
        if not 1 <= bits <= 10_000:
            raise ValueError(f"bits={bits}: expected 1 to 10,000")
        space = spaces.Box(0.0, 1.0, (bits,), np.float32)
        self.observation_space = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), space))
        self.action_space = spaces.Discrete(bits)
        self._bits = self._goal = np.zeros(bits, np.float32)
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        size = len(self._bits)
        # The bits that differ: at least one.
        differs = self.np_random.integers(1, 2**size)
        self._goal = self.np_random.integers(0, 2, size).astype(np.float32)
        self._bits = np.abs(self._goal - (differs >> np.arange(size) & 1)).astype(np.float32)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        self._bits[action] = 1.0 - self._bits[action]
        self._steps += 1
        reward = self.compute_reward(self._bits, self._goal, {})
        over = self.compute_terminated(self._bits, self._goal, {})
        return self._observe(), float(reward), bool(over), self._steps >= len(self._bits), {}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        """0 if the goal is reached, else -1: float32, without the last axis of the goals ``(..., N)``."""
        return np.asarray((achieved_goal == desired_goal).all(axis=-1), np.float32) - 1.0

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        """Bool, whether the goal is reached."""
        return np.asarray((achieved_goal == desired_goal).all(axis=-1))

    def _observe(self) -> dict[str, Array]:
        state = {"observation": self._bits, "achieved_goal": self._bits, "desired_goal": self._goal}
        return {name: values.copy() for name, values in state.items()}
