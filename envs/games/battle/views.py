"""What allies see of the battle, and what is known of all of it."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array
from minding.envs.games.battle.maps import HEALTH, PAUSE, SIGHT, BattleMap
from minding.envs.games.battle.rules import LIFE, MOVE, SHOOT, WAIT, Battles, X, Y

_SEEN = 6
"""Numbers about another unit: whether it is seen, distance, x, y, health, and whether it can be shot at or is ready."""
_OWN = 4


def obs_size(field: BattleMap) -> int:
    """Numbers that a unit sees."""
    return len(range(MOVE, SHOOT)) + _SEEN * (field.units - 1) + _OWN


def state_size(field: BattleMap) -> int:
    """Numbers of the state."""
    return 4 * field.units + 1


class Views:
    """Observations and states of N battles; all numbers lie in [-1, 1].

    Args:
      battles: what is seen.
    """

    def __init__(self, battles: Battles) -> None:
        self._battles = battles
        field = battles.field
        self._others = np.array([[k for k in range(field.allies) if k != m] for m in range(field.allies)], int)
        self._self = np.arange(field.allies)[:, None]
        self._centre = np.array([(field.width - 1) / 2, (field.height - 1) / 2], np.float32)

    def observe(self, gaps: Array, distances: Array, legal: Array) -> Array:
        """Float32 ``(N, A, D)``, zeros for the dead.

        In this order: which of the four directions are inside the field; of each enemy in sight 1, its distance, x and
        y relative to the unit in units of the sight, its health, and whether it can be shot at; of each other ally
        likewise, with whether its rifle is ready; the unit's own health, whether its rifle is ready, and its place.

        Args:
          gaps, distances, legal: of the battles.
        """
        battles = self._battles
        field = battles.field
        units, allies = battles.units, battles.units[:, : field.allies]
        alive = allies[..., LIFE] > 0
        seen = np.empty((battles.count, field.allies, obs_size(field)), np.float32)
        seen[..., :4] = legal[..., MOVE:SHOOT]
        enemies = seen[..., 4 : 4 + _SEEN * field.enemies].reshape(*seen.shape[:2], field.enemies, _SEEN)
        life = np.broadcast_to(units[:, None, field.allies :, LIFE], distances.shape)
        _describe(enemies, gaps, distances, life, legal[..., SHOOT:])
        seen[..., 4 : 4 + _SEEN * field.enemies] = enemies.reshape(*seen.shape[:2], -1)
        if field.allies > 1:
            seen[..., 4 + _SEEN * field.enemies : -_OWN] = self._friends(allies, alive)
        seen[..., -4] = allies[..., LIFE] / HEALTH
        seen[..., -3] = allies[..., WAIT] == 0
        seen[..., -2:] = (allies[..., X : Y + 1] - self._centre) / self._centre
        seen[~alive] = 0
        return seen

    def state(self) -> Array:
        """Float32 ``(N, S)``: health, readiness and place of each unit, allies first, zeros for the dead; the time."""
        battles = self._battles
        units, alive = battles.units, battles.alive
        state = np.empty((battles.count, state_size(battles.field)), np.float32)
        each = np.empty((*units.shape[:2], 4), np.float32)
        each[..., 0] = units[..., LIFE] / HEALTH
        each[..., 1] = 1 - units[..., WAIT] / PAUSE
        each[..., 2:] = (units[..., X : Y + 1] - self._centre) / self._centre
        each[~alive] = 0
        state[:, :-1] = each.reshape(len(state), -1)
        state[:, -1] = battles.steps / battles.field.limit
        return state

    def _friends(self, allies: Array, alive: Array) -> Array:
        places = allies[..., X : Y + 1]
        gaps = places[:, self._others] - places[:, self._self]
        both = alive[:, self._self] & alive[:, self._others]
        distances = np.where(both, np.sqrt((gaps * gaps).sum(axis=-1)), np.inf)
        friends = np.empty((*distances.shape, _SEEN), np.float32)
        life, ready = allies[:, self._others, LIFE], allies[:, self._others, WAIT] == 0
        _describe(friends, gaps, distances, life, ready)
        return friends.reshape(*friends.shape[:2], -1)


def _describe(out: Array, gaps: Array, distances: Array, life: Array, flag: Array) -> None:
    """Writes what is seen of other units into ``(..., 6)``; zeros beyond the sight."""
    visible = distances <= SIGHT
    out[..., 0] = visible
    out[..., 1] = np.where(visible, distances, 0) / SIGHT
    out[..., 2:4] = gaps / SIGHT
    out[..., 4] = life / HEALTH
    out[..., 5] = flag
    out[~visible] = 0
