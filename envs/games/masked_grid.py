"""MaskedGrid: visit every cell of a grid once. Nearly all actions are illegal, and a mask in `info` says which."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from minding.engine.types import Array


class _Grids:
    """The game on N grids.

    Attributes:
      position: int64 ``(N,)``, cell of each walker.
      visited: bool ``(N, cells)``.
    """

    def __init__(self, num_envs: int, side: int) -> None:
        if side < 2 or side % 2:
            raise ValueError(
                f"side={side}: expected an even number, so that every cell can be visited from every start"
            )
        cells = np.arange(side * side)
        distance = np.abs(cells[:, None] // side - cells // side) + np.abs(cells[:, None] % side - cells % side)
        self.cells = len(cells)
        self._adjacent: Array = distance == 1
        self.observation_space = spaces.Box(0.0, 1.0, (2 * self.cells,), np.float32)
        self.action_space = spaces.Discrete(self.cells)
        self.position = np.zeros(num_envs, np.int64)
        self.visited = np.zeros((num_envs, self.cells), bool)

    def begin(self, rows: Array, position: Array) -> None:
        """Starts these grids at these cells."""
        self.position[rows] = position
        self.visited[rows] = False
        self.visited[rows, position] = True

    def move(self, action: Array) -> None:
        """Goes to the chosen cells; ValueError if one is illegal."""
        rows = np.arange(len(action))
        wrong = ~self.legal()[rows, action]
        if wrong.any():
            n = int(wrong.argmax())
            raise ValueError(f"action {action[n]} is illegal in cell {self.position[n]}: obey info['action_mask']")
        self.position[:] = action
        self.visited[rows, action] = True

    def legal(self) -> Array:
        """Bool ``(N, cells)``: neighbours that were not visited."""
        allowed: Array = self._adjacent[self.position] & ~self.visited
        return allowed

    def observe(self) -> Array:
        """Float32 ``(N, 2 * cells)``: which cells were visited, then the position as one-hot."""
        here = np.zeros_like(self.visited)
        here[np.arange(len(here)), self.position] = True
        return np.concatenate([self.visited, here], axis=1).astype(np.float32)

    def info(self) -> dict[str, Array]:
        return {"action_mask": self.legal(), "success": self.visited.all(axis=1)}


class MaskedGrid(gymnasium.Env[Array, int]):  # type: ignore[misc]
    """A walk over a grid of `side` x `side` cells that enters no cell twice.

    It begins in a random cell. Action k goes to cell k (row by row); legal are the neighbours that were not visited: at
    most 4 of them, and at most 3 after the first step. Each step earns 1. The episode terminates when no action is
    legal: the best return is ``side**2 - 1``, from every start, because an even grid has a cycle through all cells.

    Observation: float32 ``(2 * side**2,)``, which cells were visited, then the position as one-hot. `info` holds
    `action_mask`, bool ``(side**2,)``, and `success`, whether all cells were visited. An illegal action raises a
    ValueError.

    Args:
      side: an even number.
    """

    def __init__(self, side: int = 6) -> None:
        self._grids = _Grids(1, side)
        self.observation_space, self.action_space = self._grids.observation_space, self._grids.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._grids.begin(np.arange(1), self.np_random.integers(self._grids.cells, size=1))
        return self._grids.observe()[0], self._info()

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._grids.move(np.asarray([action]))
        info = self._info()
        return self._grids.observe()[0], 1.0, not info["action_mask"].any(), False, info

    def _info(self) -> dict[str, Any]:
        info = self._grids.info()
        return {"action_mask": info["action_mask"][0], "success": bool(info["success"][0])}


class MaskedGridVector(VectorEnv[Array, Array, Array]):  # type: ignore[misc]
    """N grids in one NumPy step; ended ones are reset by ``reset(options={'reset_mask': ...})``.

    Args:
      num_envs: N.
      side: see `MaskedGrid`.
      max_episode_steps: steps after which an episode is truncated.

    Attributes:
      position, visited, steps: the whole state, with the random generator.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    native_state = ("position", "visited", "steps")

    def __init__(self, num_envs: int = 1, side: int = 6, max_episode_steps: int | None = None) -> None:
        self.num_envs = num_envs
        self._grids = _Grids(num_envs, side)
        self._limit = np.inf if max_episode_steps is None else max_episode_steps
        self.steps = np.zeros(num_envs, np.int64)
        self.single_observation_space = self._grids.observation_space
        self.single_action_space = self._grids.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def position(self) -> Array:
        return self._grids.position

    @position.setter
    def position(self, value: Array) -> None:
        self._grids.position = value

    @property
    def visited(self) -> Array:
        return self._grids.visited

    @visited.setter
    def visited(self, value: Array) -> None:
        self._grids.visited = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        rows = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        self._grids.begin(rows, self.np_random.integers(self._grids.cells, size=len(rows)))
        self.steps[rows] = 0
        return self._grids.observe(), self._grids.info()

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        self._grids.move(actions)
        self.steps += 1
        info = self._grids.info()
        terminated = ~info["action_mask"].any(axis=1)
        return self._grids.observe(), np.ones(self.num_envs), terminated, self.steps >= self._limit, info
