"""Pictures of a battle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array
from minding.envs.games.battle.maps import HEALTH, BattleMap
from minding.envs.games.battle.rules import LIFE, X, Y

CELL = 24
"""Side of a cell in pixels."""
_GROUND, _LINES = (236, 232, 220), (222, 217, 203)
_ALLY, _ENEMY, _GONE, _HURT = (38, 92, 168), (190, 56, 48), (176, 172, 160), (70, 66, 60)


def draw(field: BattleMap, units: Array, shots: Sequence[tuple[int, int]], places: Array) -> Array:
    """A picture, uint8 ``(H, W, 3)``: units as discs with health bars, and the shots of the last step.

    Args:
      field: the map.
      units: current state of the units, float32 ``(U, 4)``.
      shots: pairs of the unit that shot and its target.
      places: place of each unit when it was last alive, float32 ``(U, 2)``.
    """
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
