"""Games with goals, whose rewards give no hint on the way: BitFlip and PointReach."""

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


_FORCE = 0.03
_KEPT = 0.7
"""Fraction of the velocity that remains after a step: full force leads to a speed of 0.1 per step."""


class PointReach(gymnasium.Env[dict[str, Array], Array]):  # type: ignore[misc]
    """A force has to push a point in the square [-1, 1]^2 to within `tolerance` of a goal.

        v' = 0.7 v + 0.03 a,   x' = x + v'        (at a wall the velocity towards it becomes 0)

    Start and goal are uniformly random, and farther apart than the tolerance. A step costs 1 unless it reaches the
    goal, which ends the episode. As an environment with goals it has `compute_reward` and `compute_terminated`, which
    take one goal or several. ``info['is_success']`` says whether the goal was reached.

    Observation: a Dict of `observation` (x and v, float32 ``(4,)``; v in units of the highest speed), `achieved_goal`
    (x) and `desired_goal`, float32 ``(2,)``. Action: the force a, float32 ``(2,)`` in [-1, 1].
    """

    def __init__(self, tolerance: float = 0.05) -> None:
        if not 0.0 < tolerance < 1.0:
            raise ValueError(f"tolerance={tolerance}: expected more than 0 and less than 1")
        place = spaces.Box(-1.0, 1.0, (2,), np.float32)
        state = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.observation_space = spaces.Dict(observation=state, achieved_goal=place, desired_goal=place)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._tolerance = tolerance
        self._place = self._velocity = self._goal = np.zeros(2, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        self._velocity = np.zeros(2, np.float32)
        self._place, self._goal = self._random_place(), self._random_place()
        while self.compute_terminated(self._place, self._goal, {}):
            self._goal = self._random_place()
        return self._observe(), {"is_success": False}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        force = np.clip(np.asarray(action, np.float32), -1.0, 1.0)
        self._velocity = np.float32(_KEPT) * self._velocity + np.float32(_FORCE) * force
        place = self._place + self._velocity
        self._place = np.clip(place, -1.0, 1.0)
        self._velocity[place != self._place] = 0.0
        reward = self.compute_reward(self._place, self._goal, {})
        reached = bool(self.compute_terminated(self._place, self._goal, {}))
        return self._observe(), float(reward), reached, False, {"is_success": reached}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        """0 if the goal is reached, else -1: float32, without the last axis of the goals ``(..., 2)``."""
        return self.compute_terminated(achieved_goal, desired_goal, info).astype(np.float32) - np.float32(1.0)

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        """Bool, whether the goal is reached."""
        distance = np.linalg.norm(np.asarray(achieved_goal) - np.asarray(desired_goal), axis=-1)
        return np.asarray(distance <= self._tolerance)

    def _random_place(self) -> Array:
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)

    def _observe(self) -> dict[str, Array]:
        speed = self._velocity * np.float32((1.0 - _KEPT) / _FORCE)
        state = np.concatenate([self._place, np.clip(speed, -1.0, 1.0)])
        return {"observation": state, "achieved_goal": self._place.copy(), "desired_goal": self._goal.copy()}
