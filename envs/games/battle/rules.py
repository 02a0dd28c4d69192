"""The rules of the battle, for N battles in one NumPy step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minding.engine.types import Array
from minding.envs.games.battle.maps import DAMAGE, HEALTH, PAUSE, RANGE, SCRIPT_DAMAGE, BattleMap

X, Y, LIFE, WAIT = range(4)
"""Columns of `Battles.units`: place, health, and steps until the rifle is ready."""
NOOP, STOP, MOVE, SHOOT = 0, 1, 2, 6
"""Actions: nothing (of the dead alone), stay, four directions from `MOVE` on, and from `SHOOT` on an enemy each."""
DIRECTIONS = np.array([[0, -1], [0, 1], [1, 0], [-1, 0]])
"""North, south, east, west as (x, y)."""
_KILL, _WIN, _BEST_RETURN = 10.0, 200.0, 20.0
_START_COLUMNS = 3
"""Columns of cells at its edge of the field in which a team begins, one from the wall."""
_START_ROWS = 6


class Orders(NamedTuple):
    """What units do in a step, int64 ``(N, units of one team)`` each.

    Attributes:
      target: the number among the other team at which a unit shoots, -1: none.
      heading, detour: direction in which it goes, and the one that it takes if that cell is occupied; -1: none.
    """

    target: Array
    heading: Array
    detour: Array


class Outcome(NamedTuple):
    """What a step led to, ``(N,)`` each: the reward of the team, whether it won, and whether a team is defeated."""

    reward: Array
    won: Array
    over: Array


class Battles:
    """N battles on one map.

    In a step all shots fall at once, then those that are left move, one after the other: cells hold one unit.

    The reward is SMAC's (Samvelyan et al., 2019, https://arxiv.org/abs/1902.04043): damage done, 10 for each enemy
    killed and 200 for the victory, scaled so that a victory brings 20.

    Args:
      field: the map.
      count: N.

    Attributes:
      units: float32 ``(N, U, 4)``, allies first; zeros in the row of a dead one. With `steps` the whole state.
      steps: int64 ``(N,)``, of the running episodes.
    """

    def __init__(self, field: BattleMap, count: int) -> None:
        self.field, self.count = field, count
        self.units = np.zeros((count, field.units, 4), np.float32)
        self.steps = np.zeros(count, np.int64)
        self._rows = np.arange(count)
        self._scale = _BEST_RETURN / (field.enemies * (HEALTH + _KILL) + _WIN)
        # Both teams take turns, so that neither always has the choice of the cells.
        allies, enemies = range(field.allies), range(field.allies, field.units)
        longest = range(max(field.allies, field.enemies))
        self._order = [team[i] for i in longest for team in (allies, enemies) if i < len(team)]

    @property
    def alive(self) -> Array:
        """Bool ``(N, U)``."""
        living: Array = self.units[..., LIFE] > 0
        return living

    def begin(self, rows: Array, rng: np.random.Generator) -> None:
        """Begins these battles, with all units in random cells at their edges of the field."""
        field = self.field
        top = (field.height - _START_ROWS) // 2
        self.steps[rows] = 0
        for first, count, column in ((0, field.allies, 1), (field.allies, field.enemies, field.width - 2)):
            inwards = 1 if first == 0 else -1
            cells = rng.random((len(rows), _START_COLUMNS * _START_ROWS)).argsort(axis=1)[:, :count]
            team = self.units[:, first : first + count]
            team[rows, :, X] = column + inwards * (cells % _START_COLUMNS)
            team[rows, :, Y] = top + cells // _START_COLUMNS
            team[rows, :, LIFE] = HEALTH
            team[rows, :, WAIT] = 0

    def gaps(self) -> Array:
        """Float32 ``(N, A, E, 2)``, from each ally to each enemy as (x, y)."""
        places, allies = self.units[..., :LIFE], self.field.allies
        gaps: Array = places[:, None, allies:] - places[:, :allies, None]
        return gaps

    def distances(self, gaps: Array) -> Array:
        """Float32 ``(N, A, E)``; infinite where one of the two is dead."""
        alive, allies = self.alive, self.field.allies
        both = alive[:, :allies, None] & alive[:, None, allies:]
        return np.where(both, np.sqrt((gaps * gaps).sum(axis=-1)), np.float32(np.inf))

    def legal(self, distances: Array) -> Array:
        """Bool ``(N, A, 6 + E)``: which actions allies have."""
        field, allies = self.field, self.units[:, : self.field.allies]
        alive = allies[..., LIFE] > 0
        legal = np.zeros((self.count, field.allies, SHOOT + field.enemies), bool)
        legal[..., NOOP] = ~alive
        legal[..., STOP] = alive
        x, y = allies[..., X], allies[..., Y]
        for k, inside in enumerate((y > 0, y < field.height - 1, x < field.width - 1, x > 0)):
            legal[..., MOVE + k] = alive & inside
        legal[..., SHOOT:] = (distances <= RANGE) & (allies[..., WAIT] == 0)[..., None]
        return legal

    def orders(self, action: Array, legal: Array) -> Orders:
        """What actions ``(N, A)`` of allies mean; those of the dead mean nothing.

        Raises:
          ValueError: one is illegal.
        """
        alive = self.alive[:, : self.field.allies]
        action = np.where(alive, action, NOOP)
        inside = (action >= 0) & (action < legal.shape[-1])
        chosen = np.take_along_axis(legal, np.where(inside, action, 0)[..., None], axis=-1)[..., 0]
        if not (chosen & inside).all():
            n, m = (int(k) for k in np.argwhere(~(chosen & inside))[0])
            raise ValueError(
                f"action {int(action[n, m])} of unit {m} in battle {n} is illegal: get_avail_actions(), or the action "
                "mask, says which are legal"
            )
        target = np.where(action >= SHOOT, action - SHOOT, -1)
        heading = np.where((action >= MOVE) & (action < SHOOT), action - MOVE, -1)
        return Orders(target, heading, np.full_like(heading, -1))

    def step(self, allies: Orders, enemies: Orders) -> Outcome:
        """Carries out what both teams do."""
        count = self.field.allies
        before = self.units[:, count:, LIFE].copy()
        self._shoot(allies.target, enemies.target)
        self._move(np.hstack([allies.heading, enemies.heading]), np.hstack([allies.detour, enemies.detour]))
        self.units[~self.alive] = 0
        self.steps += 1
        after, alive = self.units[:, count:, LIFE], self.alive
        killed = ((before > 0) & (after <= 0)).sum(axis=1)
        lost, beaten = ~alive[:, :count].any(axis=1), ~alive[:, count:].any(axis=1)
        won = beaten & ~lost
        reward = ((before - after).sum(axis=1) + _KILL * killed + _WIN * won) * self._scale
        return Outcome(reward, won, beaten | lost)

    def _shoot(self, at_enemies: Array, at_allies: Array) -> None:
        count = self.field.allies
        allies, enemies = self.units[:, :count], self.units[:, count:]
        for targets, team, others, damage in (
            (at_enemies, allies, enemies, DAMAGE),
            (at_allies, enemies, allies, SCRIPT_DAMAGE),
        ):
            team[..., WAIT] = np.where(targets >= 0, PAUSE, np.maximum(team[..., WAIT] - 1, 0))
            hits = (targets[..., None] == np.arange(others.shape[1])).sum(axis=1)
            # The dead shoot in the same step: their health is set to zero after all shots.
            others[..., LIFE] = np.maximum(others[..., LIFE] - damage * hits, 0)

    def _move(self, heading: Array, detour: Array) -> None:
        field, rows = self.field, self._rows
        alive = self.alive
        steps = DIRECTIONS[:, 0] + DIRECTIONS[:, 1] * field.width
        here = (self.units[..., X] + self.units[..., Y] * field.width).astype(np.int64)
        occupied = np.zeros((self.count, field.width * field.height), bool)
        occupied[np.broadcast_to(rows[:, None], here.shape)[alive], here[alive]] = True
        goals = [np.where(alive & (way >= 0), here + steps[way], here) for way in (heading, detour)]
        for unit in self._order:
            now = here[:, unit]
            first, second = goals[0][:, unit], goals[1][:, unit]
            # One's own cell is occupied: who stays finds no free cell.
            there = np.where(occupied[rows, first], np.where(occupied[rows, second], now, second), first)
            moved = there != now
            occupied[rows[moved], now[moved]] = False
            occupied[rows[moved], there[moved]] = True
            here[:, unit] = there
        self.units[..., X] = np.where(alive, here % field.width, 0)
        self.units[..., Y] = np.where(alive, here // field.width, 0)
