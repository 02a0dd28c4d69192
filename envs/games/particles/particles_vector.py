"""N worlds of one game in one NumPy step, with an agents axis."""

from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data.agent_axis import ALIVE, STATE
from minding.engine.data.observation import OBSERVATION
from minding.engine.types import Array
from minding.envs.games.game_vector import AgentsVector
from minding.envs.games.particles.physics import Worlds, distances
from minding.envs.games.particles.scenarios import Scenario, Sight
from minding.envs.spaces.info import AgentsSpace, Team

_WAYS = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])
"""The directions in which actions push: none, left, right, down, up."""


class ParticlesVector(AgentsVector):
    """N worlds of one game.

    From equal states, observations and rewards equal those of mpe2, bit by bit. All worlds draw their initial states
    from one generator.
    """

    native_state = ("positions", "velocities", "steps")

    def __init__(
        self,
        scenario: Scenario,
        num_envs: int,
        max_episode_steps: int | None = None,
        global_state: bool = False,
        team_reward: bool = False,
    ) -> None:
        self.scenario, bodies = scenario, scenario.bodies()
        self._worlds = Worlds(bodies, num_envs)
        self._accel = np.array(bodies.accel)[:, None]
        self._limit = min(scenario.max_cycles, max_episode_steps or scenario.max_cycles)
        self._continuous, self._with_state = scenario.continuous_actions, global_state
        self.steps = np.zeros(num_envs, np.int64)
        self._sight = Sight(len(bodies.accel), len(bodies.size))
        seen = scenario.seen()
        sizes, largest = [2 * len(places) for places in seen], max(map(len, seen))
        # Smaller observations are padded with zeros, which are not part of the state.
        self._seen = np.array([places + [self._sight.nothing] * (largest - len(places)) for places in seen])
        self._state_places = np.flatnonzero(np.arange(2 * largest) < np.array(sizes)[:, None])
        super().__init__(num_envs, _space(scenario, sizes, global_state, team_reward))

    @property
    def positions(self) -> Array:
        return self._worlds.positions

    @positions.setter
    def positions(self, value: Array) -> None:
        self._worlds.positions = value

    @property
    def velocities(self) -> Array:
        return self._worlds.velocities

    @velocities.setter
    def velocities(self, value: Array) -> None:
        self._worlds.velocities = value

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        self._worlds.step(self._pushes(actions))
        self.steps += 1
        offsets = self._worlds.offsets()
        distance = distances(offsets)
        late = self.steps >= self.scenario.max_cycles
        won = np.zeros(self.num_envs, bool)
        if self.scenario.terminate_on_success:
            won = self.scenario.success(distance) & ~late
        truncated = late | ((self.steps >= self._limit) & ~won)
        reward = self._shared(self.scenario.reward(self.positions, distance))
        return self._observe(offsets, ~won), reward, won, truncated, {}

    def _begin(self, rows: Array) -> dict[str, Array]:
        self.positions[rows] = self.scenario.place(len(rows), self.np_random)
        self.velocities[rows] = 0.0
        self.steps[rows] = 0
        return self._observe(self._worlds.offsets(), np.ones(self.num_envs, bool))

    def _pushes(self, actions: Array) -> Array:
        """The forces of the agents' own pushes, ``(N, M, 2)``."""
        if self._continuous:
            parts = np.clip(actions, 0, 1)
            return (parts[..., 2::2] - parts[..., 1::2]).astype(np.float64) * self._accel
        if actions.min() < 0 or actions.max() >= len(_WAYS):
            raise ValueError(f"actions are {actions}; expected numbers from 0 to {len(_WAYS) - 1}")
        return _WAYS.take(actions, axis=0) * self._accel

    def _observe(self, offsets: Array, there: Array) -> dict[str, Array]:
        listed = self._sight.vectors(self.velocities, self.positions, offsets)
        obs = listed.take(self._seen, axis=1).reshape(self.num_envs, len(self._seen), -1)
        shown = {OBSERVATION: obs, ALIVE: there[:, None].repeat(len(self._seen), axis=1)}
        if self._with_state:
            shown[STATE] = obs.reshape(self.num_envs, -1).take(self._state_places, axis=1)
        return shown


def _space(scenario: Scenario, sizes: list[int], global_state: bool, team_reward: bool) -> AgentsSpace:
    own = tuple(spaces.Dict({OBSERVATION: _box(size)}) for size in sizes)
    action = spaces.Box(0, 1, (len(_WAYS),)) if scenario.continuous_actions else spaces.Discrete(len(_WAYS))
    team = Team(scenario.names, own, (action,) * len(sizes), one_reward=team_reward)
    state = _box(sum(sizes)) if global_state else None
    return AgentsSpace(team, spaces.Dict({OBSERVATION: _box(max(sizes))}), action, state)


def _box(size: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)
