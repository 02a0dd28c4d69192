"""The duel: the battle with agents on both sides, each of which sees it as its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minding.engine.data.agent_axis import ALIVE, STATE
from minding.engine.data.observation import ACTION_MASK, OBSERVATION
from minding.engine.types import Array
from minding.envs.games.battle.battle_vector import UnitsVector, unit_team
from minding.envs.games.battle.rules import DAMAGE, LIFE, BattleMap, Battles, Orders, Views, X, find_map, survey
from minding.envs.games.battle.single import UnitsGame

_OTHER_WAY = np.array([0, 1, 3, 2, -1])
"""North, south, east, west and none, as the other team sees them."""


def duel_map(name: str) -> BattleMap:
    field = find_map(name)
    if field.allies != field.enemies:
        raise ValueError(f"map_name={name!r}: a duel needs teams of one size, such as '5v5'")
    return field


def duel_names(field: BattleMap) -> tuple[str, ...]:
    """The names of the units of both teams."""
    return tuple(f"{team}_{m}" for team in ("blue", "red") for m in range(field.allies))


class DuelStep(NamedTuple):
    """The result of a step of N duels, ``(N, ...)`` each; the score is 1, 0 or 0.5 for the first team."""

    reward: Array
    over: Array
    score: Array


class Duels:
    """N duels on one map.

    Each team earns its reward in a battle minus the reward of the other team, in equal parts for its units. Dead units
    earn nothing.
    """

    def __init__(self, field: BattleMap, count: int) -> None:
        self.field = field
        self.battles = Battles(field, count, enemy_damage=DAMAGE)
        self._views = Views(field)
        self.look()

    @property
    def alive(self) -> Array:
        """Which units are alive, bool ``(N, 2A)``."""
        return self._sides[0].alive

    @property
    def legal(self) -> Array:
        """The legal actions of all units, bool ``(N, 2A, 6 + A)``."""
        return np.concatenate([side.legal for side in self._sides], axis=1)

    def look(self) -> None:
        """Surveys the duels from both sides; call it after units were moved."""
        units, size = self.battles.units.copy(), self.field.allies
        turned = np.concatenate([units[:, size:], units[:, :size]], axis=1)
        turned[..., X] = np.where(turned[..., LIFE] > 0, self.field.width - 1 - turned[..., X], 0)
        self._sides = survey(self.field, units), survey(self.field, turned)

    def observe(self) -> Array:
        """The units' observations, float32 ``(N, 2A, D)``: both teams see the field as if they began on the left."""
        return np.concatenate([self._views.observe(side) for side in self._sides], axis=1)

    def state(self) -> Array:
        """The global state from the view of the first team, float32 ``(N, S)``."""
        return self._views.state(self._sides[0], self.battles.steps)

    def step(self, action: Array) -> DuelStep:
        """Carries out the actions ``(N, 2A)`` of both teams; ValueError if one is illegal."""
        battles, size, acting = self.battles, self.field.allies, self.alive
        mine, theirs = (
            battles.orders(part, side) for part, side in zip(np.split(action, 2, axis=1), self._sides, strict=True)
        )
        before = battles.units[..., LIFE].copy()
        outcome = battles.step(mine, Orders(theirs.target, _OTHER_WAY[theirs.heading], theirs.detour))
        after = battles.units[..., LIFE]
        self.look()
        beaten = outcome.over & ~outcome.won & self.alive[:, size:].any(axis=1)
        gained = outcome.reward - battles.earned(before[:, :size], after[:, :size], beaten)
        score = np.where(outcome.won, 1.0, np.where(beaten, 0.0, 0.5))
        reward = np.repeat(np.stack([gained, -gained], axis=1) / size, size, axis=1)
        return DuelStep(reward * acting, outcome.over, score)


class DuelVector(UnitsVector):
    """N duels in one NumPy step."""

    def __init__(
        self,
        num_envs: int = 1,
        map_name: str = "3v3",
        max_episode_steps: int | None = None,
        global_state: bool = False,
        team_reward: bool = False,
        render_mode: str | None = None,
    ) -> None:
        field = duel_map(map_name)
        self.render_mode = render_mode
        self._duels = Duels(field, num_envs)
        team = unit_team(field, duel_names(field), one_reward=team_reward, shared_info=("score",))
        super().__init__(self._duels.battles, max_episode_steps, global_state, team)

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        step = self._duels.step(actions)
        truncated = (self.steps >= self._limit) & ~step.over
        obs = self._observe(self._duels.alive & ~step.over[:, None])
        return obs, self._shared(step.reward), step.over, truncated, {"score": step.score}

    def _begin(self, rows: Array) -> dict[str, Array]:
        self._battles.begin(rows, self.np_random)
        self._duels.look()
        return self._observe(self._duels.alive)

    def _look(self, rows: Any) -> None:
        self._duels.look()

    def _observe(self, there: Array) -> dict[str, Array]:
        seen = {OBSERVATION: self._duels.observe(), ACTION_MASK: self._duels.legal | ~there[..., None], ALIVE: there}
        return {**seen, STATE: self._duels.state()} if self._with_state else seen


def parallel_env(map_name: str = "3v3", render_mode: str | None = None) -> UnitsGame:
    """A duel with PettingZoo's parallel interface."""
    return UnitsGame(DuelVector(1, map_name, global_state=True), "Duel", render_mode)


parallel_env.vector_env = DuelVector  # type: ignore[attr-defined]
