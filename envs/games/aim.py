"""A game of choosing a direction and a force, with actions of two kinds: Aim."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from minding.engine.types import Array

_COMPASS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], np.float32)
_NEAREST = 0.2
_PENALTY, _COST = 2.0, 0.5
"""Loss of reward per unit of distance by which a throw in the right direction misses the target, and per unit of force
of any other throw."""


class Aim(gymnasium.Env[Array, tuple[Any, ...]]):  # type: ignore[misc]
    """Throws at targets to the east, north, west or south: an action is a direction and a force.

    A throw in the target's direction earns ``1 - 2 |force - distance|``, any other throw costs half its force.
    After each throw there is another target, in a random direction at a distance in [0.2, 1]; an episode has 10 throws.
    Perfect play earns 10. The right forces in random directions earn 0.3, and the right directions with a force that
    does not depend on the distance earn 6.

    Observation: position of the target, float32 ``(2,)``. Action: Tuple of the direction, Discrete(4), and the force in
    [0, 1], a Box ``(1,)``; with `own_forces` a Box for each direction, of which that of the chosen direction counts.
    If there are blocked directions, ``info['action_mask']`` allows the others.
    """

    def __init__(self, own_forces: bool = False, blocked: int = 0) -> None:
        if not 0 <= blocked < len(_COMPASS):
            raise ValueError(f"blocked={blocked}: expected 0 to 3 directions")
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        forces = [spaces.Box(0.0, 1.0, (1,), np.float32) for _ in range(len(_COMPASS) if own_forces else 1)]
        self.action_space = spaces.Tuple((spaces.Discrete(len(_COMPASS)), *forces))
        self._blocked = blocked
        self._direction, self._distance, self._mask = 0, 1.0, np.ones(len(_COMPASS), np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        return self._next_target()

    def step(self, action: tuple[Any, ...]) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        direction, *forces = action
        if not self._mask[direction]:
            raise ValueError(f"direction {direction} is blocked: expected one that info['action_mask'] allows")
        force = float(forces[direction if len(forces) > 1 else 0][0])
        reward = -_COST * force
        if direction == self._direction:
            reward = 1.0 - _PENALTY * abs(force - self._distance)
        obs, info = self._next_target()
        return obs, reward, False, False, info

    def _next_target(self) -> tuple[Array, dict[str, Any]]:
        order = self.np_random.permutation(len(_COMPASS))
        self._direction, self._distance = int(order[0]), float(self.np_random.uniform(_NEAREST, 1.0))
        self._mask = np.ones(len(_COMPASS), np.int8)
        self._mask[order[len(order) - self._blocked :]] = 0
        info = {"action_mask": self._mask.copy()} if self._blocked else {}
        return np.float32(self._distance) * _COMPASS[self._direction], info
