"""The opponent: riflemen that attack the nearest ally."""

from __future__ import annotations

import numpy as np

from minding.envs.games.battle.maps import RANGE, BattleMap
from minding.envs.games.battle.rules import WAIT, Orders, Survey

_NORTH, _SOUTH, _EAST, _WEST = range(4)


def attack_nearest(field: BattleMap, now: Survey) -> Orders:
    """The orders of the enemies: each shoots at the nearest ally if it is in range, waits for its rifle, or approaches.

    An enemy moves along the axis on which the ally is farther away, or along the other axis if that cell is occupied.

    Args:
      field: the map.
      now: the survey of the battles.
    """
    gaps, distances = now.gaps, now.distances
    nearest = distances.argmin(axis=1)
    distance = np.take_along_axis(distances, nearest[:, None], axis=1)[:, 0]
    gap = np.take_along_axis(gaps, nearest[:, None, :, None], axis=1)[:, 0]
    in_range = distance <= RANGE
    ready = now.units[:, field.allies :, WAIT] == 0
    target = np.where(in_range & ready, nearest, -1)
    # A gap is the offset from the ally to the enemy.
    along_x = np.where(gap[..., 0] > 0, _WEST, _EAST)
    along_y = np.where(gap[..., 1] > 0, _NORTH, _SOUTH)
    wide = np.abs(gap[..., 0]) >= np.abs(gap[..., 1])
    other = np.where(wide, gap[..., 1], gap[..., 0])
    goes = ~in_range & np.isfinite(distance)
    heading = np.where(goes, np.where(wide, along_x, along_y), -1)
    detour = np.where(goes & (other != 0), np.where(wide, along_y, along_x), -1)
    return Orders(target, heading, detour)
