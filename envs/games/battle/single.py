"""One battle, with the interface of SMAC, and its picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.types import Array
from minding.envs.games.battle.rules import (
    HEALTH,
    LIFE,
    SHOOT,
    BattleMap,
    Battles,
    Views,
    X,
    Y,
    attack_nearest,
    find_map,
    obs_size,
    state_size,
    survey,
)

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


class Battle:
    """A team of riflemen against a scripted one, with the methods of ``smac.env.StarCraft2Env``.

    The actions of a living unit are: 1 stay; 2 to 5 go north, south, east or west; 6 + k shoot at enemy k, which has to
    be in range, while the rifle has to be ready. The only action of a dead unit is 0, do nothing.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}  # noqa: RUF012

    def __init__(self, map_name: str = "3v3", seed: int | None = None, render_mode: str | None = None) -> None:
        self.field = find_map(map_name)
        self.battles = Battles(self.field, 1)
        self.render_mode = render_mode
        self._views = Views(self.field)
        self._rng = np.random.default_rng(seed)
        self._shots: list[tuple[int, int]] = []
        # Place of each unit when it was last alive.
        self._places = np.zeros((self.field.units, 2), np.float32)
        self.reset()

    def get_env_info(self) -> dict[str, int]:
        """The number of agents and actions, the sizes of observation and state, and the limit of an episode."""
        return {
            "state_shape": state_size(self.field),
            "obs_shape": obs_size(self.field),
            "n_actions": SHOOT + self.field.enemies,
            "n_agents": self.field.allies,
            "episode_limit": self.field.limit,
        }

    def reset(self, seed: int | None = None) -> tuple[list[Array], Array]:
        """Begins an episode; with `seed`, the episode of that seed."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.battles.begin(np.arange(1), self._rng)
        self._shots = []
        self._look()
        return self.get_obs(), self.get_state()

    def step(self, actions: Any) -> tuple[float, bool, dict[str, Any]]:
        """Carries out one action per unit."""
        orders = self.battles.orders(np.asarray(actions, np.int64)[None], self._now)
        script = attack_nearest(self.field, self._now)
        allies = self.field.allies
        self._shots = [(m, allies + int(k)) for m, k in enumerate(orders.target[0]) if k >= 0]
        self._shots += [(allies + m, int(k)) for m, k in enumerate(script.target[0]) if k >= 0]
        outcome = self.battles.step(orders, script)
        self._look()
        over, limit = bool(outcome.over[0]), bool(self.battles.steps[0] >= self.field.limit)
        dead = ~self._now.alive[0]
        info = {
            "battle_won": bool(outcome.won[0]),
            "dead_allies": int(dead[:allies].sum()),
            "dead_enemies": int(dead[allies:].sum()),
        }
        if limit and not over:
            info["episode_limit"] = True
        return float(outcome.reward[0]), over or limit, info

    def get_obs(self) -> list[Array]:
        """The observation of each unit, see `Views.observe`."""
        return list(self._views.observe(self._now)[0])

    def get_state(self) -> Array:
        """The global state, see `Views.state`."""
        return self._views.state(self._now, self.battles.steps)[0]

    def get_avail_actions(self) -> list[list[int]]:
        """The legal actions of each unit, marked by 1."""
        return self._now.legal[0].astype(int).tolist()  # type: ignore[no-any-return]

    def render(self) -> Array:
        """A picture, uint8 ``(H, W, 3)``."""
        return draw(self.field, self.battles.units[0], self._shots, self._places)

    def close(self) -> None:
        """Does nothing: a battle has nothing to close."""

    def _look(self) -> None:
        # A copy, because units are written in place.
        self._now = survey(self.field, self.battles.units.copy())
        alive = self._now.alive[0]
        self._places[alive] = self._now.units[0, alive, X : Y + 1]
