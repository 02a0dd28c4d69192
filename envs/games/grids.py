"""Games on a grid: DeepSea, whose reward random play almost never finds, and MaskedGrid, with illegal actions."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array
from minding.envs.games.game_vector import Game, GameVector

COST = 0.01
"""Cost of an episode with steps to the right only."""


class DeepSeaVector(GameVector):
    """N seas in one NumPy step.

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
    """

    def __init__(self, size: int = 10, mapping_seed: int = 0) -> None:
        super().__init__(DeepSeaVector(1, size, mapping_seed))


_CELL = 40  # pixels
_FREE, _VISITED, _HERE, _LINE = (235, 235, 235), (70, 110, 160), (240, 140, 40), (255, 255, 255)
"""RGB colors."""


class MaskedGridVector(GameVector):
    """N grids in one NumPy step.

    Attributes:
      position: int64 ``(N,)``, cell of each walker.
      visited: bool ``(N, cells)``, which cells each walker has visited.
    """

    native_state = ("position", "visited", "steps")

    def __init__(self, num_envs: int = 1, side: int = 6, max_episode_steps: int | None = None) -> None:
        if not 2 <= side <= 64 or side % 2:
            raise ValueError(
                f"side={side}: expected an even number from 2 to 64: every cell can be visited from every start"
            )
        cells = np.arange(side * side)
        observation_space = spaces.Box(0.0, 1.0, (2 * len(cells),), np.float32)
        super().__init__(num_envs, observation_space, spaces.Discrete(len(cells)), max_episode_steps)
        distance = np.abs(cells[:, None] // side - cells // side) + np.abs(cells[:, None] % side - cells % side)
        self._adjacent: Array = distance == 1
        self.position = np.zeros(num_envs, np.int64)
        self.visited = np.zeros((num_envs, len(cells)), bool)

    def legal(self) -> Array:
        """The legal actions, bool ``(N, cells)``: neighbors that were not visited."""
        allowed: Array = self._adjacent[self.position] & ~self.visited
        return allowed

    def _begin(self, rows: Array) -> None:
        position = self.np_random.integers(len(self._adjacent), size=len(rows))
        self.position[rows] = position
        self.visited[rows] = False
        self.visited[rows, position] = True

    def _move(self, actions: Array) -> tuple[Array, Array]:
        rows = np.arange(self.num_envs)
        wrong = ~self.legal()[rows, actions]
        if wrong.any():
            n = int(wrong.argmax())
            raise ValueError(f"action {actions[n]} is illegal in cell {self.position[n]}: obey info['action_mask']")
        self.position[:] = actions
        self.visited[rows, actions] = True
        return np.ones(self.num_envs), ~self.legal().any(axis=1)

    def _observe(self) -> Array:
        """The observations, float32 ``(N, 2 * cells)``: the visited cells, then the position as a one-hot vector."""
        here = np.zeros_like(self.visited)
        here[np.arange(self.num_envs), self.position] = True
        return np.concatenate([self.visited, here], axis=1).astype(np.float32)

    def _info(self) -> dict[str, Array]:
        return {"action_mask": self.legal(), "success": self.visited.all(axis=1)}


class MaskedGrid(Game):
    """A walk over a grid of `side` x `side` cells that enters no cell twice.

    It begins in a random cell. Action k goes to cell k (row by row). The legal actions are the neighbors that were not
    visited: at most 4 of them, and at most 3 after the first step. Each step earns 1. The episode terminates when no
    action is legal: the best return is ``side**2 - 1``, from every start, because an even grid has a cycle through all
    cells.

    Observation: float32 ``(2 * side**2,)``, the visited cells, then the position as a one-hot vector. `info` holds
    `action_mask`, bool ``(side**2,)``, and `success`, whether all cells were visited. An illegal action raises a
    ValueError.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, side: int = 6, render_mode: str | None = None) -> None:
        self._grids = MaskedGridVector(1, side)
        super().__init__(self._grids)
        self.side, self.render_mode = side, render_mode

    def render(self) -> Array | None:
        """A picture, uint8 ``(side * 40, side * 40, 3)``, or None without a render mode."""
        if self.render_mode is None:
            return None
        cells = np.where(self._grids.visited[0, :, None], _VISITED, _FREE)
        cells[self._grids.position[0]] = _HERE
        picture = cells.reshape(self.side, self.side, 3).repeat(_CELL, axis=0).repeat(_CELL, axis=1)
        # Draws lines between the cells.
        picture[::_CELL] = _LINE
        picture[:, ::_CELL] = _LINE
        return picture.astype(np.uint8)
