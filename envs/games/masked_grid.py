"""MaskedGrid: visit every cell of a grid once. Nearly all actions are illegal, as a mask in `info` shows."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from minding.engine.types import Array
from minding.envs.games.vector import Game, GameVector

_CELL = 40  # pixels
_FREE, _VISITED, _HERE, _LINE = (235, 235, 235), (70, 110, 160), (240, 140, 40), (255, 255, 255)
"""RGB colors."""


class MaskedGridVector(GameVector):
    """N grids in one NumPy step.

    Args:
      num_envs: number of grids, N.
      side: see `MaskedGrid`.
      max_episode_steps: steps after which an episode is truncated.

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

    Args:
      side: cells per side, an even number.
      render_mode: 'rgb_array', with which `render` draws visited cells dark and the walker's cell orange, or None.
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
