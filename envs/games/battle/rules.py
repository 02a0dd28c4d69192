"""The battle: its maps, its rules for N battles in one NumPy step, the scripted opponent, and what the allies see."""

import dataclasses
from typing import NamedTuple

import numpy as np

from minding.engine.errors import nearest
from minding.engine.types import Array


@dataclasses.dataclass(frozen=True)
class BattleMap:
    """A grid on which two teams of riflemen meet."""

    allies: int
    enemies: int
    width: int = 16
    height: int = 12
    limit: int = 60

    @property
    def units(self) -> int:
        """Number of units of both teams; allies come first."""
        return self.allies + self.enemies


MAPS = {
    "3v3": BattleMap(3, 3),
    "5v5": BattleMap(5, 5),
    "5v6": BattleMap(5, 6),
    "8v8": BattleMap(8, 8, width=18, height=14, limit=80),
}

HEALTH = 40.0
DAMAGE, SCRIPT_DAMAGE = 8.0, 7.0
"""Damage of one shot of an ally, which kills with five shots, and of the scripted team, which kills with six."""
PAUSE = 2
"""Steps between two shots in which the rifle is not ready."""
RANGE = 5.0
SIGHT = 8.0


def find_map(name: str) -> BattleMap:
    if name not in MAPS:
        raise ValueError(f"map_name={name!r}: unknown map{nearest(name, MAPS)}; expected one of {', '.join(MAPS)}")
    return MAPS[name]


X, Y, LIFE, WAIT = range(4)
"""Columns of `Battles.units`: place (x, y), health, and steps until the rifle is ready."""
NOOP, STOP, MOVE, SHOOT = 0, 1, 2, 6
"""Actions: do nothing (dead units only), stay, move (four directions from `MOVE`), shoot at enemy k (`SHOOT` + k)."""
DIRECTIONS = np.array([[0, -1], [0, 1], [1, 0], [-1, 0]])
"""North, south, east, west as (x, y)."""
_KILL, _WIN, _BEST_RETURN = 10.0, 200.0, 20.0
_START_COLUMNS = 3
"""Number of columns in which a team begins at its edge of the field; one column at the wall stays free."""
_START_ROWS = 6


class Orders(NamedTuple):
    """The orders of units in a step, int64 ``(N, units of one team)`` each."""

    target: Array
    heading: Array
    detour: Array


class Survey(NamedTuple):
    """The situation of K battles, derived from the places and the health of their units.

    Attributes:
      units: float32 ``(K, U, 4)``, all units.
      alive: bool ``(K, U)``, which units are alive.
      gaps: float32 ``(K, A, E, 2)``, offset (x, y) from each ally to each enemy.
      distances: float32 ``(K, A, E)``, length of these offsets; infinite if one of the two is dead.
      legal: bool ``(K, A, 6 + E)``, the legal actions of allies.
    """

    units: Array
    alive: Array
    gaps: Array
    distances: Array
    legal: Array


def survey(field: BattleMap, units: Array) -> Survey:
    """Surveys battles on one map; units: float32 ``(K, U, 4)``."""
    count, alive = field.allies, units[..., LIFE] > 0
    gaps = units[:, None, count:, :LIFE] - units[:, :count, None, :LIFE]
    x, y = gaps[..., 0], gaps[..., 1]
    both = alive[:, :count, None] & alive[:, None, count:]
    distances = np.where(both, np.sqrt(x * x + y * y), np.float32(np.inf))
    return Survey(units, alive, gaps, distances, _legal(field, units[:, :count], alive[:, :count], distances))


def _legal(field: BattleMap, allies: Array, alive: Array, distances: Array) -> Array:
    legal = np.empty((*alive.shape, SHOOT + field.enemies), bool)
    legal[..., NOOP] = ~alive
    legal[..., STOP] = alive
    x, y = allies[..., X], allies[..., Y]
    for k, inside in enumerate((y > 0, y < field.height - 1, x < field.width - 1, x > 0)):
        legal[..., MOVE + k] = alive & inside
    legal[..., SHOOT:] = (distances <= RANGE) & (allies[..., WAIT] == 0)[..., None]
    return legal


class Outcome(NamedTuple):
    """The result of a step, ``(N,)`` each: the allies' reward, whether they won, and whether a team is defeated."""

    reward: Array
    won: Array
    over: Array


class Battles:
    """N battles on one map.

    In a step all shots are fired at once; then the surviving units move one after the other, because a cell holds only
    one unit.

    The reward is that of SMAC (Samvelyan et al., 2019, https://arxiv.org/abs/1902.04043): damage done, 10 for each
    enemy killed and 200 for the victory, scaled so that a victory earns 20 in all.

    Attributes:
      units: float32 ``(N, U, 4)``, allies first; zeros in the rows of dead units. Together with `steps`, it is the
        whole state.
      steps: int64 ``(N,)``, steps of the running episodes.
    """

    def __init__(self, field: BattleMap, count: int, enemy_damage: float = SCRIPT_DAMAGE) -> None:
        self.field, self.count = field, count
        self._enemy_damage = enemy_damage
        self.units = np.zeros((count, field.units, 4), np.float32)
        self.steps = np.zeros(count, np.int64)
        self._rows = np.arange(count)
        self._scale = _BEST_RETURN / (field.enemies * (HEALTH + _KILL) + _WIN)
        # Units of both teams move alternately, so that neither team always chooses its cells first.
        allies, enemies = range(field.allies), range(field.allies, field.units)
        longest = range(max(field.allies, field.enemies))
        self._order = [team[i] for i in longest for team in (allies, enemies) if i < len(team)]

    @property
    def alive(self) -> Array:
        """Which units are alive, bool ``(N, U)``."""
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

    def orders(self, action: Array, now: Survey) -> Orders:
        """The orders that follow from the actions ``(N, A)`` of allies; actions of dead units are ignored."""
        action = np.where(now.alive[:, : self.field.allies], action, NOOP)
        known = np.clip(action, 0, now.legal.shape[-1] - 1)
        obeys = np.take_along_axis(now.legal, known[..., None], axis=-1)[..., 0] & (known == action)
        if not obeys.all():
            n, m = (int(k) for k in np.argwhere(~obeys)[0])
            raise ValueError(
                f"action {int(action[n, m])} of unit {m} in battle {n} is illegal: get_avail_actions(), or the action "
                "mask, says which are legal"
            )
        target = np.where(action >= SHOOT, action - SHOOT, -1)
        heading = np.where((action >= MOVE) & (action < SHOOT), action - MOVE, -1)
        return Orders(target, heading, np.full_like(heading, -1))

    def step(self, allies: Orders, enemies: Orders) -> Outcome:
        """Carries out the orders of both teams."""
        count = self.field.allies
        before = self.units[:, count:, LIFE].copy()
        self._shoot(allies.target, enemies.target)
        self._move(np.hstack([allies.heading, enemies.heading]), np.hstack([allies.detour, enemies.detour]))
        alive = self.alive
        self.units[~alive] = 0
        self.steps += 1
        after = self.units[:, count:, LIFE]
        lost, beaten = ~alive[:, :count].any(axis=1), ~alive[:, count:].any(axis=1)
        won = beaten & ~lost
        return Outcome(self.earned(before, after, won), won, beaten | lost)

    def earned(self, before: Array, after: Array, won: Array) -> Array:
        """The reward ``(N,)``, from the other team's health ``(N, E)`` before and after a step, and the victories."""
        killed = ((before > 0) & (after <= 0)).sum(axis=1)
        reward: Array = ((before - after).sum(axis=1) + _KILL * killed + _WIN * won) * self._scale
        return reward

    def _shoot(self, at_enemies: Array, at_allies: Array) -> None:
        count = self.field.allies
        allies, enemies = self.units[:, :count], self.units[:, count:]
        for targets, team, others, damage in (
            (at_enemies, allies, enemies, DAMAGE),
            (at_allies, enemies, allies, self._enemy_damage),
        ):
            team[..., WAIT] = np.where(targets >= 0, PAUSE, np.maximum(team[..., WAIT] - 1, 0))
            hits = (targets[..., None] == np.arange(others.shape[1])).sum(axis=1)
            # Units that die in this step still shoot: dead units are cleared after all shots.
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
            # A unit that stays finds its own cell occupied, and so does not move.
            there = np.where(occupied[rows, first], np.where(occupied[rows, second], now, second), first)
            moved = there != now
            occupied[rows[moved], now[moved]] = False
            occupied[rows[moved], there[moved]] = True
            here[:, unit] = there
        self.units[..., X] = np.where(alive, here % field.width, 0)
        self.units[..., Y] = np.where(alive, here // field.width, 0)


_NORTH, _SOUTH, _EAST, _WEST = range(4)


def attack_nearest(field: BattleMap, now: Survey) -> Orders:
    """The orders of the enemies: each shoots at the nearest ally if it is in range, waits for its rifle, or
    approaches. An enemy moves along the axis on which the ally is farther away, or along the other axis if that cell
    is occupied."""
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
    """Observations and states of battles on one map; all values are in [-1, 1]."""

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
        The values of dead units are zeros."""
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
