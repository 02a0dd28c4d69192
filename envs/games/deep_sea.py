"""DeepSea: a reward at the far end of a grid, which random play almost never finds."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array
from minding.envs.games.vector import Game, GameVector

COST = 0.01
"""Cost of an episode with steps to the right only."""


class DeepSeaVector(GameVector):
    """N seas in one NumPy step.

    Args:
      num_envs: number of seas, N.
      size, mapping_seed: see `DeepSea`.
      max_episode_steps: steps after which an episode is truncated; it terminates after `size` steps in any case.

    Attributes:
      column: int64 ``(N,)``, current columns; the current row is the number of steps taken.
    """

    native_state = ("column", "steps")

    def __init__(
        self, num_envs: int = 1, size: int = 10, mapping_seed: int = 0, max_episode_steps: int | None = None
    ) -> None:
        if not 2 <= size <= 1000:
            raise ValueError(f"size={size}: expected 2 to 1000 rows and columns")
        observation_space = spaces.Box(0.0, 1.0, (size * size,), np.float32)
        super().__init__(num_envs, observation_space, spaces.Discrete(2), max_episode_steps)
        self.size = size
        self.column = np.zeros(num_envs, np.int64)
        # The action that goes to the right, for each cell.
        self._right = np.random.default_rng(mapping_seed).integers(2, size=(size, size))

    def _begin(self, rows: Array) -> None:
        self.column[rows] = 0

    def _move(self, actions: Array) -> tuple[Array, Array]:
        right = actions == self._right[self.steps, self.column]
        found = right & (self.column == self.size - 1)
        self.column = np.clip(self.column + np.where(right, 1, -1), 0, self.size - 1)
        return found - right * (COST / self.size), self.steps + 1 >= self.size

    def _observe(self) -> Array:
        """The cells as one-hot vectors, float32 ``(N, size**2)``, row by row; zeros below the last row."""
        obs = np.zeros((self.num_envs, self.size**2), np.float32)
        rows = np.flatnonzero(self.steps < self.size)
        obs[rows, self.steps[rows] * self.size + self.column[rows]] = 1.0
        return obs


class DeepSea(Game):
    """A descent through a grid of `size` x `size` cells (Osband et al., 2017, https://arxiv.org/abs/1703.07608).

    An episode begins in the upper left corner. Every step leads one row down, and one column to the left or to the
    right, except at a side of the grid. Which of the two actions goes to the right is drawn once for each cell, by
    `mapping_seed`. A step to the right costs ``0.01 / size``, and such a step in the lower right corner earns 1. That
    corner can only be reached by going right every time: the best return is 0.99, never going right returns 0, and
    random play finds the reward in one of ``2**size`` episodes. The rules are those of bsuite (Osband et al., 2020,
    https://arxiv.org/abs/1908.03568), without noise.

    Observation: float32 ``(size**2,)``, the cell as a one-hot vector, row by row; zeros after termination.

    Args:
      size: number of rows, of columns, and of steps in an episode.
      mapping_seed: seed that determines which action goes to the right in each cell.
    """

    def __init__(self, size: int = 10, mapping_seed: int = 0) -> None:
        super().__init__(DeepSeaVector(1, size, mapping_seed))
