"""DeepSea: a reward at the far end of a grid, which random play all but never finds."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array
from minding.envs.games.vector import Game, GameVector

COST = 0.01
"""What an episode of nothing but steps to the right costs."""


class DeepSeaVector(GameVector):
    """N seas in one NumPy step.

    Args:
      num_envs: N.
      size, mapping_seed: see `DeepSea`.
      max_episode_steps: steps after which an episode is truncated; it ends by itself after `size`.

    Attributes:
      column: int64 ``(N,)``; the row is the number of steps taken.
    """

    native_state = ("column", "steps")

    def __init__(
        self, num_envs: int = 1, size: int = 10, mapping_seed: int = 0, max_episode_steps: int | None = None
    ) -> None:
        if size < 2:
            raise ValueError(f"size={size}: expected at least 2 rows and columns")
        observation_space = spaces.Box(0.0, 1.0, (size * size,), np.float32)
        super().__init__(num_envs, observation_space, spaces.Discrete(2), max_episode_steps)
        self.size = size
        self.column = np.zeros(num_envs, np.int64)
        # Of each cell the action that goes to the right.
        self._right = np.random.default_rng(mapping_seed).integers(2, size=(size, size))

    def _begin(self, rows: Array) -> None:
        self.column[rows] = 0

    def _move(self, actions: Array) -> tuple[Array, Array]:
        right = actions == self._right[self.steps, self.column]
        found = right & (self.column == self.size - 1)
        self.column = np.clip(self.column + np.where(right, 1, -1), 0, self.size - 1)
        return found - right * (COST / self.size), self.steps + 1 >= self.size

    def _observe(self) -> Array:
        """Float32 ``(N, size**2)``, the cell as one-hot, row by row; zeros below the last row."""
        obs = np.zeros((self.num_envs, self.size**2), np.float32)
        rows = np.flatnonzero(self.steps < self.size)
        obs[rows, self.steps[rows] * self.size + self.column[rows]] = 1.0
        return obs


class DeepSea(Game):
    """A descent through a grid of `size` x `size` cells (Osband et al., 2017, https://arxiv.org/abs/1703.07608).

    It begins in the upper left corner, and every step leads one row down, to the column on the left or on the right (at
    a side, stays there). Which of the two actions goes to the right is drawn for each cell once, by `mapping_seed`. A
    step to the right costs ``0.01 / size``, and one in the lower right corner earns 1. That corner can only be reached
    by going right every time: the best return is 0.99, that of never going right 0, and random play finds the reward in
    one of ``2**size`` episodes. As in bsuite (Osband et al., 2020, https://arxiv.org/abs/1908.03568), without noise.

    Observation: float32 ``(size**2,)``, the cell as one-hot, row by row; zeros where the episode has terminated.

    Args:
      size: rows, columns, and steps of an episode.
      mapping_seed: draws which action goes to the right.
    """

    def __init__(self, size: int = 10, mapping_seed: int = 0) -> None:
        super().__init__(DeepSeaVector(1, size, mapping_seed))
