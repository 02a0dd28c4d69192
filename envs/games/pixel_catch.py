"""PixelCatch: a ball falls, a paddle catches it. Small images for tests and for the image preset."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from minding.engine.types import Array

_BALL, _PADDLE = 255, 128


class PixelCatch(gymnasium.Env[Array, int]):  # type: ignore[misc]
    """Catch, drawn at 21 x 21 pixels: a 7 x 7 grid whose cells are squares of 3 pixels.

    A ball starts in a random column of the top row and falls one row per step; the paddle covers one cell of
    the bottom row and moves left (0), stays (1) or moves right (2). When the ball reaches the bottom row the
    reward is +1 if the paddle is there and -1 if not, and the next ball starts. An episode of `balls` balls
    terminates after the last ball; its return is in [-balls, balls].

    Observation: uint8 ``(1, 21, 21)``, ball 255, paddle 128. Every column can be reached in time, so that a
    perfect policy always scores `balls`.
    """

    GRID = 7
    CELL = 3

    def __init__(self, balls: int = 5) -> None:
        side = self.GRID * self.CELL
        self.observation_space = spaces.Box(0, 255, (1, side, side), np.uint8)
        self.action_space = spaces.Discrete(3)
        self._balls = balls
        self._balls_left = 0
        self._row = self._column = self._paddle = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._balls_left = self._balls
        self._paddle = self.GRID // 2
        self._drop()
        return self._draw(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._paddle = min(max(self._paddle + int(action) - 1, 0), self.GRID - 1)
        self._row += 1
        reward = 0.0
        if self._row == self.GRID - 1:
            reward = 1.0 if self._column == self._paddle else -1.0
            self._balls_left -= 1
            if self._balls_left:
                self._drop()
        return self._draw(), reward, self._balls_left == 0, False, {}

    def _drop(self) -> None:
        self._row = 0
        self._column = int(self.np_random.integers(self.GRID))

    def _draw(self) -> Array:
        image = np.zeros(self.observation_space.shape or (), np.uint8)
        image[0, self._cell(self.GRID - 1), self._cell(self._paddle)] = _PADDLE
        image[0, self._cell(self._row), self._cell(self._column)] = _BALL
        return image

    def _cell(self, position: int) -> slice:
        return slice(position * self.CELL, (position + 1) * self.CELL)
