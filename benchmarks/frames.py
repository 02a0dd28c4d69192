"""An environment that only hands out images: what is timed in it is acting and learning."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium as gym
import numpy as np

FRAMES, EPISODE, ACTIONS = 512, 500, 6
SHAPE = (4, 84, 84)
"""A stack of four Atari frames."""


@functools.cache
def frames(shape: tuple[int, ...]) -> np.ndarray:
    """Random images, uint8; the environments of a process share them."""
    return np.random.default_rng(0).integers(0, 256, (FRAMES, *shape)).astype(np.uint8)


class Frames(gym.Env):
    """Images ``(C, H, W)`` in a fixed order; the reward does not depend on the action.

    Args:
      shape: of the images.
    """

    def __init__(self, shape: tuple[int, ...] = SHAPE) -> None:
        self.observation_space = gym.spaces.Box(0, 255, tuple(shape), np.uint8)
        self.action_space = gym.spaces.Discrete(ACTIONS)
        self._frames = frames(tuple(shape))
        self._age = self._start = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._age, self._start = 0, int(self.np_random.integers(FRAMES))
        return self._frames[self._start], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._age += 1
        image = self._frames[(self._start + self._age) % FRAMES]
        return image, float(image[0, 0, 0] > 127), self._age == EPISODE, False, {}
