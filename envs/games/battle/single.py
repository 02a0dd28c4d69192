"""One battle or duel, and its picture."""

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.envs.games.battle.battle_vector import UnitsVector
from minding.envs.games.battle.rules import HEALTH, LIFE, BattleMap, X, Y
from minding.envs.games.game_vector import AgentsGame

CELL = 24
"""Side of a cell in pixels."""
_GROUND, _LINES = (236, 232, 220), (222, 217, 203)
_ALLY, _ENEMY, _GONE, _HURT = (38, 92, 168), (190, 56, 48), (176, 172, 160), (70, 66, 60)


def draw(field: BattleMap, units: Array, shots: Sequence[tuple[int, int]], places: Array) -> Array:
    """A picture, uint8 ``(H, W, 3)``: units, float32 ``(U, 4)``, as discs with health bars, and the shots of the last
    step; `places`: place of each unit when it was last alive, float32 ``(U, 2)``."""
    image = np.empty((field.height * CELL, field.width * CELL, 3), np.uint8)
    image[:] = _GROUND
    image[::CELL] = image[:, ::CELL] = _LINES
    for shooter, target in shots:
        _line(image, _middle(places[shooter]), _middle(places[target]), _color(field, shooter))
    alive = units[:, LIFE] > 0
    for unit in np.flatnonzero(alive):
        _disc(image, _middle(units[unit, X : Y + 1]), _color(field, int(unit)))
        _bar(image, units[unit])
    for unit in np.flatnonzero(~alive):
        x, y = _middle(places[unit])
        image[y - 2 : y + 3, x - 2 : x + 3] = _GONE
    return image


def _color(field: BattleMap, unit: int) -> tuple[int, int, int]:
    return _ALLY if unit < field.allies else _ENEMY


def _middle(place: Array) -> tuple[int, int]:
    return int(place[0]) * CELL + CELL // 2, int(place[1]) * CELL + CELL // 2


def _disc(image: Array, middle: tuple[int, int], color: tuple[int, int, int]) -> None:
    radius = CELL // 3
    x, y = middle
    across = np.arange(-radius, radius + 1)
    inside = across[:, None] ** 2 + across**2 <= radius**2
    image[y - radius : y + radius + 1, x - radius : x + radius + 1][inside] = color


def _bar(image: Array, unit: Array) -> None:
    left, top = int(unit[X]) * CELL + 3, int(unit[Y]) * CELL + 1
    width = CELL - 6
    image[top : top + 3, left : left + width] = _GONE
    image[top : top + 3, left : left + int(np.ceil(width * unit[LIFE] / HEALTH))] = _HURT


def _line(image: Array, start: tuple[int, int], end: tuple[int, int], color: tuple[int, int, int]) -> None:
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    x = np.linspace(start[0], end[0], steps + 1).round().astype(int)
    y = np.linspace(start[1], end[1], steps + 1).round().astype(int)
    image[y, x] = color


class UnitsGame(AgentsGame):
    """One battle or duel, with PettingZoo's parallel interface and its picture."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, units: UnitsVector, name: str, render_mode: str | None = None) -> None:
        self._vector, self.render_mode = units, render_mode
        # Place of each unit when it was last alive.
        self._places = np.zeros((units.field.units, 2), np.float32)
        super().__init__(units, name, units.field.limit)

    def render(self) -> Array:
        """A picture, uint8 ``(H, W, 3)``."""
        return draw(self._vector.field, self._vector.units[0], self._vector.shots, self._places)

    def _seen(self, agents: list[str]) -> dict[str, dict[str, Array]]:
        alive = self._vector.units[0, :, LIFE] > 0
        self._places[alive] = self._vector.units[0, alive, X : Y + 1]
        return super()._seen(agents)
