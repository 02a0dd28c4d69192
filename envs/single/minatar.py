"""MinAtar: five small games after those of Atari, under the ids ``MinAtar/GAME-v0`` and ``-v1`` (extra `minatar`).

Young and Tian, 2019, https://arxiv.org/abs/1903.03176. Importing this module registers the ids, which are those of the
package: ``v0`` has all six actions, ``v1`` only those that the game uses.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from minding.engine.process.packages import import_installed
from minding.engine.types import Array

import_installed("minatar")
from minatar.gym import BaseEnv  # noqa: E402

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
_MODULES = {"SpaceInvaders": "space_invaders"}
_CELL = 16
"""Pixels of a cell's side in pictures."""


class MinAtar(BaseEnv):  # type: ignore[misc]
    """A game on a field of 10 x 10 cells.

    Observation: uint8 ``(C, 10, 10)``, one plane for each kind of object, 255 in the cells that hold one. Action: a
    Discrete; with the probability `sticky_action_prob`, the game repeats the last action instead. Episodes depend only
    on their seed and actions: unlike in the package, an episode does not begin with the last action of the previous
    one. They have no limit of time, except in Freeway, whose episodes terminate after 2,500 steps.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, game: str, **options: Any) -> None:
        super().__init__(game, **options)
        height, width, kinds = self.game.state_shape()
        self.observation_space = spaces.Box(0, 255, (kinds, height, width), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self.game.last_action = 0
        gymnasium.Env.reset(self, seed=seed)  # which the package leaves out
        state, info = super().reset(seed=seed, options=options)
        return _planes(state), info

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        state, reward, terminated, truncated, info = super().step(action)
        return _planes(state), float(reward), bool(terminated), truncated, info

    def render(self) -> Array:
        """A picture in the colors of the package, uint8 ``(160, 160, 3)``."""
        cells = np.round(255 * np.asarray(super().render())).astype(np.uint8)
        return cells.repeat(_CELL, axis=0).repeat(_CELL, axis=1)


def _planes(state: Array) -> Array:
    """The package's bool ``(H, W, C)`` as bytes of 0 and 255, channels first."""
    return np.moveaxis(state, -1, 0) * np.uint8(255)


for _game in GAMES:
    for _version, _minimal in enumerate((False, True)):
        _env_id = f"MinAtar/{_game}-v{_version}"
        # The package's own function registers the same ids, with channels last.
        gymnasium.registry.pop(_env_id, None)
        gymnasium.register(
            _env_id,
            "minding.envs.single.minatar:MinAtar",
            kwargs={"game": _MODULES.get(_game, _game.lower()), "use_minimal_action_set": _minimal},
        )
