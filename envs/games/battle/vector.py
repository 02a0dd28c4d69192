"""N battles in one NumPy step, with an agents axis."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from minding.engine.data.agents import ALIVE, STATE
from minding.engine.data.masks import ACTION_MASK, OBSERVATION
from minding.engine.types import Array
from minding.envs.games.battle.maps import find_map
from minding.envs.games.battle.rules import SHOOT, Battles
from minding.envs.games.battle.script import attack_nearest
from minding.envs.games.battle.views import Views, obs_size, state_size
from minding.envs.single.smac import SHARED_INFO, agent_names
from minding.envs.spaces.agents import AgentsSpace, Team


class BattleVector(VectorEnv[Any, Array, Any]):  # type: ignore[misc]
    """N battles; ended ones are reset by ``reset(options={'reset_mask': ...})``.

    Args:
      num_envs: N.
      map_name: one of `maps.MAPS`.
      max_episode_steps: where it is lower than the limit of the map.
      global_state: whether observations have the entry `STATE`.
      render_mode: for the single battle; many are not drawn.

    Attributes:
      units, steps: the whole state, with the random generator.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        map_name: str = "3v3",
        max_episode_steps: int | None = None,
        global_state: bool = False,
        render_mode: str | None = None,
    ) -> None:
        field = find_map(map_name)
        self.num_envs, self.render_mode = num_envs, render_mode
        self._battles = Battles(field, num_envs)
        self._views = Views(self._battles)
        self._limit = min(field.limit, max_episode_steps or field.limit)
        names = agent_names(field.allies)
        seen = spaces.Dict(
            {
                ACTION_MASK: spaces.MultiBinary(SHOOT + field.enemies),
                OBSERVATION: spaces.Box(-np.inf, np.inf, (obs_size(field),), np.float32),
            }
        )
        self.single_action_space = spaces.Discrete(SHOOT + field.enemies)
        own = (seen,) * len(names), (self.single_action_space,) * len(names)
        state = spaces.Box(-np.inf, np.inf, (state_size(field),), np.float32) if global_state else None
        self._with_state = global_state
        team = Team(names, *own, one_reward=True, shared_info=SHARED_INFO)
        self.single_observation_space = AgentsSpace(team, seen, self.single_action_space, state)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    @property
    def units(self) -> Array:
        return self._battles.units

    @units.setter
    def units(self, value: Array) -> None:
        self._battles.units[:] = value
        self._look()

    @property
    def steps(self) -> Array:
        return self._battles.steps

    @steps.setter
    def steps(self, value: Array) -> None:
        self._battles.steps[:] = value

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        rows = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        self._battles.begin(rows, self.np_random)
        self._look()
        alive = self._battles.alive[:, : self._battles.field.allies]
        return self._observe(alive), {}

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        battles, allies = self._battles, self._battles.field.allies
        orders = battles.orders(actions, self._legal)
        outcome = battles.step(orders, attack_nearest(battles, self._gaps, self._distances))
        self._look()
        alive = battles.alive
        truncated = (battles.steps >= self._limit) & ~outcome.over
        info = {
            "battle_won": outcome.won,
            "dead_allies": allies - alive[:, :allies].sum(axis=1),
            "dead_enemies": battles.field.enemies - alive[:, allies:].sum(axis=1),
        }
        there = alive[:, :allies] & ~outcome.over[:, None]
        return self._observe(there), outcome.reward, outcome.over, truncated, info

    def _look(self) -> None:
        self._gaps = self._battles.gaps()
        self._distances = self._battles.distances(self._gaps)
        self._legal = self._battles.legal(self._distances)

    def _observe(self, alive: Array) -> dict[str, Array]:
        mask = self._legal | ~alive[..., None]
        seen = {OBSERVATION: self._views.observe(self._gaps, self._distances, self._legal), ACTION_MASK: mask}
        seen[ALIVE] = alive
        if self._with_state:
            seen[STATE] = self._views.state()
        return seen
