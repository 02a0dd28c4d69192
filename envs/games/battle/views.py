"""The views of allies on the battle, and its global state."""

import numpy as np

from minding.engine.types import Array
from minding.envs.games.battle.rules import HEALTH, LIFE, MOVE, PAUSE, SHOOT, SIGHT, WAIT, BattleMap, Survey, X, Y

_SEEN = 6
"""Number of values about another unit: visible, distance, x, y, health, and can be shot at (enemy) or ready (ally)."""
_OWN = 4


def obs_size(field: BattleMap) -> int:
    """Number of values in a unit's observation."""
    return len(range(MOVE, SHOOT)) + _SEEN * (field.units - 1) + _OWN


def state_size(field: BattleMap) -> int:
    """Number of values in the global state."""
    return 4 * field.units + 1


class Views:
    """Observations and states of battles on one map; all values are in [-1, 1].

    Args:
      field: the map.
    """

    def __init__(self, field: BattleMap) -> None:
        self._field = field
        self._others = np.array([[k for k in range(field.allies) if k != m] for m in range(field.allies)], int)
        self._center = np.array([(field.width - 1) / 2, (field.height - 1) / 2], np.float32)

    def observe(self, now: Survey) -> Array:
        """The observations of allies, float32 ``(K, A, D)``, zeros for the dead.

        Their values, in this order: for each of the four directions, whether it leads inside the field; for each enemy
        in sight 1, its distance, x and y relative to the unit in units of the sight, its health, and whether it can be
        shot at; for each other ally the same, but with whether its rifle is ready in the last place; the unit's own
        health, whether its rifle is ready, and its place. Units out of sight are zeros.
        """
        allies = self._field.allies
        units = now.units[:, :allies]
        seen = np.empty((len(units), allies, obs_size(self._field)), np.float32)
        seen[..., :4] = now.legal[..., MOVE:SHOOT]
        others = seen[..., 4:-_OWN].reshape(len(units), allies, self._field.units - 1, _SEEN)
        enemies, friends = others[:, :, : self._field.enemies], others[:, :, self._field.enemies :]
        life = np.broadcast_to(now.units[:, None, allies:, LIFE], now.distances.shape)
        _describe(enemies, now.gaps, now.distances, life, now.legal[..., SHOOT:])
        if allies > 1:
            self._friends(friends, units, now.alive[:, :allies])
        seen[..., 4:-_OWN] = others.reshape(len(units), allies, -1)
        seen[..., -4] = units[..., LIFE] / HEALTH
        seen[..., -3] = units[..., WAIT] == 0
        seen[..., -2:] = (units[..., X : Y + 1] - self._center) / self._center
        seen[~now.alive[:, :allies]] = 0
        return seen

    def state(self, now: Survey, steps: Array) -> Array:
        """The global state, float32 ``(K, S)``: health, readiness and place of each unit, allies first, and the time.

        The values of dead units are zeros.
        """
        units = now.units
        state = np.empty((len(units), state_size(self._field)), np.float32)
        each = np.empty((*units.shape[:2], 4), np.float32)
        each[..., 0] = units[..., LIFE] / HEALTH
        each[..., 1] = 1 - units[..., WAIT] / PAUSE
        each[..., 2:] = (units[..., X : Y + 1] - self._center) / self._center
        each[~now.alive] = 0
        state[:, :-1] = each.reshape(len(state), -1)
        state[:, -1] = steps / self._field.limit
        return state

    def _friends(self, out: Array, allies: Array, alive: Array) -> None:
        others = allies[:, self._others]
        gaps = others[..., X : Y + 1] - allies[:, :, None, X : Y + 1]
        x, y = gaps[..., 0], gaps[..., 1]
        both = alive[:, :, None] & alive[:, self._others]
        distances = np.where(both, np.sqrt(x * x + y * y), np.float32(np.inf))
        _describe(out, gaps, distances, others[..., LIFE], others[..., WAIT] == 0)


def _describe(out: Array, gaps: Array, distances: Array, life: Array, flag: Array) -> None:
    """Writes the values about other units into `out`, ``(..., 6)``; zeros for units out of sight."""
    visible = distances <= SIGHT
    out[..., 0] = 1
    out[..., 1] = distances / SIGHT
    out[..., 2:4] = gaps / SIGHT
    out[..., 4] = life / HEALTH
    out[..., 5] = flag
    out[~visible] = 0
