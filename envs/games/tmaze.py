"""TMaze: what is seen in the first cell says which way to turn at the end of a corridor."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from minding.engine.types import Array

EAST, NORTH, SOUTH, WEST = range(4)
STANDING = -0.025
"""Reward of a step that leads nowhere."""


class _Mazes:
    """The game in N mazes.

    Attributes:
      position: int64 ``(N,)``, cell of each walker, from 0 to the junction.
      north: bool ``(N,)``, whether the goal is in the north.
    """

    def __init__(self, num_envs: int, length: int) -> None:
        if length < 1:
            raise ValueError(f"length={length}: expected at least 1 step from the first cell to the junction")
        self.length = length
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.position = np.zeros(num_envs, np.int64)
        self.north = np.zeros(num_envs, bool)

    def begin(self, rows: Array, north: Array) -> None:
        """Starts these mazes with their goals."""
        self.position[rows] = 0
        self.north[rows] = north

    def move(self, action: Array) -> tuple[Array, Array]:
        """Takes one step in each; returns (reward, whether the episode is over)."""
        step = np.where(action == EAST, 1, np.where(action == WEST, -1, 0))
        turned = (self.position == self.length) & (step == 0)
        moved = np.clip(self.position + step, 0, self.length)
        right = turned & ((action == NORTH) == self.north)
        reward = np.where(turned, right, np.where(moved == self.position, STANDING, 0.0))
        self.position = moved
        return reward, turned

    def observe(self) -> Array:
        """Float32 ``(N, 4)``: goal in the north, goal in the south, corridor, junction."""
        first, last = self.position == 0, self.position == self.length
        return np.stack([first & self.north, first & ~self.north, ~first & ~last, last], axis=1).astype(np.float32)


class TMaze(gymnasium.Env[Array, int]):  # type: ignore[misc]
    """A corridor with a junction at its end (Bakker, 2001, https://papers.nips.cc/paper/1953, section 4.1).

    The first cell shows on which side of the junction, `length` steps to the east, the goal is: north or south with
    the same probability. The cells between all look alike, and so does the junction. The actions are to go east (0),
    north (1), south (2) and west (3). Turning north or south at the junction ends the episode; on the side of the goal
    it earns 1, on the other 0. A step against a wall costs 0.025. The best return is 1; what does not remember the
    first cell reaches 0.5.

    Observation: float32 ``(4,)``, one-hot: first cell with the goal in the north, or in the south; corridor; junction.

    Args:
      length: steps for which the first cell has to be remembered.
    """

    def __init__(self, length: int = 10) -> None:
        self._mazes = _Mazes(1, length)
        self.observation_space, self.action_space = self._mazes.observation_space, self._mazes.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._mazes.begin(np.arange(1), self.np_random.integers(2, size=1) == 0)
        return self._mazes.observe()[0], {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward, over = self._mazes.move(np.asarray([action]))
        return self._mazes.observe()[0], float(reward[0]), bool(over[0]), False, {}


class TMazeVector(VectorEnv[Array, Array, Array]):  # type: ignore[misc]
    """N mazes in one NumPy step; ended ones are reset by ``reset(options={'reset_mask': ...})``.

    Args:
      num_envs: N.
      length: see `TMaze`.
      max_episode_steps: steps after which an episode is truncated.

    Attributes:
      position, north, steps: the whole state, with the random generator.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    native_state = ("position", "north", "steps")

    def __init__(self, num_envs: int = 1, length: int = 10, max_episode_steps: int | None = None) -> None:
        self.num_envs = num_envs
        self._mazes = _Mazes(num_envs, length)
        self._limit = np.inf if max_episode_steps is None else max_episode_steps
        self.steps = np.zeros(num_envs, np.int64)
        self.single_observation_space = self._mazes.observation_space
        self.single_action_space = self._mazes.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def position(self) -> Array:
        return self._mazes.position

    @position.setter
    def position(self, value: Array) -> None:
        self._mazes.position = value

    @property
    def north(self) -> Array:
        return self._mazes.north

    @north.setter
    def north(self, value: Array) -> None:
        self._mazes.north = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        rows = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        self._mazes.begin(rows, self.np_random.integers(2, size=len(rows)) == 0)
        self.steps[rows] = 0
        return self._mazes.observe(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        reward, over = self._mazes.move(actions)
        self.steps += 1
        return self._mazes.observe(), reward, over, self.steps >= self._limit, {}
