"""N battles in one NumPy step, with an agents axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data.agent_axis import ALIVE, STATE
from minding.engine.data.observation import ACTION_MASK, OBSERVATION
from minding.engine.types import Array
from minding.envs.games.battle.rules import (
    SHOOT,
    BattleMap,
    Battles,
    Survey,
    Views,
    attack_nearest,
    find_map,
    obs_size,
    state_size,
    survey,
)
from minding.envs.games.game_vector import AgentsVector
from minding.envs.single.smac import SHARED_INFO, agent_names
from minding.envs.spaces.info import AgentsSpace, Team


class UnitsVector(AgentsVector):
    """N battles or duels on one map.

    Attributes:
      shots: pairs (shooter, target) of the last step of a single battle.
    """

    native_state = ("units", "steps")
    shots: Sequence[tuple[int, int]] = ()

    def __init__(self, battles: Battles, max_episode_steps: int | None, global_state: bool, team: Team) -> None:
        self.field = field = battles.field
        self._battles, self._with_state = battles, global_state
        self._limit = min(field.limit, max_episode_steps or field.limit)
        state = spaces.Box(-np.inf, np.inf, (state_size(field),), np.float32) if global_state else None
        super().__init__(battles.count, AgentsSpace(team, team.observations[0], team.actions[0], state))

    @property
    def units(self) -> Array:
        return self._battles.units

    @units.setter
    def units(self, value: Array) -> None:
        self._battles.units[:] = value
        self._look(slice(None))

    @property
    def steps(self) -> Array:
        return self._battles.steps

    @steps.setter
    def steps(self, value: Array) -> None:
        self._battles.steps[:] = value

    def _look(self, rows: Any) -> None:
        """Surveys the battles in `rows` after their units were moved."""
        raise NotImplementedError


def unit_sight(field: BattleMap) -> spaces.Dict:
    """The observation of a unit on this map."""
    return spaces.Dict(
        {
            ACTION_MASK: spaces.MultiBinary(SHOOT + field.enemies),
            OBSERVATION: spaces.Box(-np.inf, np.inf, (obs_size(field),), np.float32),
        }
    )


def unit_team(field: BattleMap, names: tuple[str, ...], *, one_reward: bool, shared_info: tuple[str, ...]) -> Team:
    """Agents that are units on this map."""
    seen, action = unit_sight(field), spaces.Discrete(SHOOT + field.enemies)
    return Team(names, (seen,) * len(names), (action,) * len(names), one_reward, shared_info)


class BattleVector(UnitsVector):
    """N battles."""

    def __init__(
        self,
        num_envs: int = 1,
        map_name: str = "3v3",
        max_episode_steps: int | None = None,
        global_state: bool = False,
        team_reward: bool = False,
        render_mode: str | None = None,
    ) -> None:
        field = find_map(map_name)
        self._views, self.render_mode = Views(field), render_mode
        self._seen: dict[str, Array] = {}
        team = unit_team(field, agent_names(field.allies), one_reward=True, shared_info=SHARED_INFO)
        super().__init__(Battles(field, num_envs), max_episode_steps, global_state, team)

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        battles, allies = self._battles, self.field.allies
        orders, script = battles.orders(actions, self._now), attack_nearest(self.field, self._now)
        if self.num_envs == 1:
            own, others = orders.target[0].tolist(), script.target[0].tolist()
            self.shots = [(m, allies + k) for m, k in enumerate(own) if k >= 0]
            self.shots = [*self.shots, *((allies + m, k) for m, k in enumerate(others) if k >= 0)]
        outcome = battles.step(orders, script)
        self._look(slice(None))
        alive = self._now.alive
        truncated = (battles.steps >= self._limit) & ~outcome.over
        info = {
            "battle_won": outcome.won,
            "dead_allies": allies - alive[:, :allies].sum(axis=1),
            "dead_enemies": self.field.enemies - alive[:, allies:].sum(axis=1),
        }
        self._show(slice(None), alive[:, :allies] & ~outcome.over[:, None])
        return self._seen, outcome.reward, outcome.over, truncated, info

    def _begin(self, rows: Array) -> dict[str, Array]:
        self._battles.begin(rows, self.np_random)
        # Usually few of the battles begin at once, and the views of the others have not changed.
        self._look(rows)
        self._show(rows, self._now.alive[rows, : self.field.allies])
        return self._seen

    def _look(self, rows: Any) -> None:
        found = survey(self.field, self._battles.units[rows])
        if len(found.units) == self.num_envs:
            # A copy, because units are written in place.
            self._now = found._replace(units=found.units.copy())
            return
        for array, part in zip(self._now, found):
            array[rows] = part

    def _show(self, rows: Any, there: Array) -> None:
        """Updates the observations of allies in these battles: views, masks, presence and, if asked for, the state."""
        now = Survey(*(array[rows] for array in self._now))
        shown = {OBSERVATION: self._views.observe(now), ACTION_MASK: now.legal | ~there[..., None], ALIVE: there}
        if self._with_state:
            shown[STATE] = self._views.state(now, self._battles.steps[rows])
        if len(now.units) == self.num_envs:
            self._seen = shown
            return
        # Copies, because arrays that were returned must not change.
        self._seen = {key: array.copy() for key, array in self._seen.items()}
        for key, array in self._seen.items():
            array[rows] = shown[key]
