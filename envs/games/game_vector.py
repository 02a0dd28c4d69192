"""Shared parts of games with one player, N at once or a single one, and of vector environments of several agents."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from pettingzoo import ParallelEnv

from minding.engine.data.agent_axis import ALIVE, STATE
from minding.engine.errors import SpaceError
from minding.engine.types import Array
from minding.envs.spaces.info import AgentsSpace


class GameVector(VectorEnv[Any, Array, Array]):  # type: ignore[misc]
    """N games with one player in one NumPy step; ``reset(options={'reset_mask': ...})`` resets those that ended.

    Attributes:
      steps: int64 ``(N,)``, steps taken in the running episodes.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    native_state: tuple[str, ...] = ("steps",)

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        max_episode_steps: int | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space, action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.steps = np.zeros(num_envs, np.int64)
        self._limit = np.inf if max_episode_steps is None else max_episode_steps

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        rows = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        self.steps[rows] = 0
        self._begin(rows)
        return self._observe(), self._info()

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        reward, over = self._move(self._checked(actions))
        self.steps += 1
        return self._observe(), reward, over, self.steps >= self._limit, self._info()

    def _checked(self, actions: Any) -> Array:
        """The actions as an array; SpaceError if they are wrong, because NumPy would read -1 as the last action."""
        space = self.single_action_space
        if not isinstance(space, spaces.Discrete):
            return np.asarray(actions)
        given = np.asarray(actions)
        if given.shape != (self.num_envs,) or given.dtype.kind not in "iu":
            raise SpaceError(
                f"{type(self).__name__}.step: expected {self.num_envs} integers, one action per game, got "
                f"{actions!r:.80} of shape {given.shape} and dtype {given.dtype}"
            )
        wrong = (given < space.start) | (given >= space.start + space.n)
        if wrong.any():
            n = int(wrong.argmax())
            last = space.start + space.n - 1
            raise SpaceError(
                f"{type(self).__name__}.step: action {given[n]} of game {n} is outside of [{space.start}, {last}]"
            )
        return given

    def _begin(self, rows: Array) -> None:
        """Begins new episodes in `rows`, with draws from `np_random`."""
        raise NotImplementedError

    def _move(self, actions: Array) -> tuple[Array, Array]:
        """Takes one step in each game, before `steps` counts it; returns (reward, whether the episode is over)."""
        raise NotImplementedError

    def _observe(self) -> Any:
        """The observations of all games: an array, or a dict of arrays."""
        raise NotImplementedError

    def _info(self) -> dict[str, Array]:
        """The entries of `info`, each an array with one row per game."""
        return {}


class Game(gymnasium.Env[Any, int]):  # type: ignore[misc]
    """A single game with one player: the vector version with N = 1."""

    def __init__(self, games: GameVector) -> None:
        self._games = games
        self.observation_space, self.action_space = games.single_observation_space, games.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._games.np_random = self.np_random
        obs, info = self._games.reset()
        return _of_first(obs), _first(info)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, over, _, info = self._games.step(np.asarray([action]))
        return _of_first(obs), float(reward[0]), bool(over[0]), False, _first(info)


def _of_first(obs: Any) -> Any:
    return {key: x[0] for key, x in obs.items()} if isinstance(obs, dict) else obs[0]


def _first(info: dict[str, Array]) -> dict[str, Any]:
    return {key: x[0] if x.ndim > 1 else x[0].item() for key, x in info.items()}


class AgentsVector(VectorEnv[Any, Array, Any]):  # type: ignore[misc]
    """N environments of several agents in one step; ``reset(options={'reset_mask': ...})`` resets those that
    ended."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    native_state: tuple[str, ...] = ()

    def __init__(self, num_envs: int, space: AgentsSpace) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = space, space.one_action
        self.observation_space = batch_space(space, num_envs)
        self.action_space = batch_space(batch_space(space.one_action, len(space.names)), num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        rows = np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        return self._begin(rows), {}

    def _begin(self, rows: Array) -> dict[str, Array]:
        """Begins new episodes in `rows` with draws from `np_random`; returns the observations of all environments."""
        raise NotImplementedError

    def _shared(self, reward: Array) -> Array:
        """The agents' rewards ``(N, M)``, or their sums ``(N,)`` if the team has one reward."""
        return reward.sum(axis=1) if self.single_observation_space.team.one_reward else reward


class AgentsGame(ParallelEnv[str, dict[str, Array], Any]):  # type: ignore[misc]
    """A single environment of several agents, with PettingZoo's parallel interface: the vector version with N = 1.

    Where the team has one reward, each agent that acts gets an equal part of it.
    """

    metadata: Mapping[str, Any] = {}

    def __init__(self, games: AgentsVector, name: str, limit: int | None = None) -> None:
        self._games, self._space = games, games.single_observation_space
        team = self._space.team
        self.possible_agents, self.max_cycles = list(team.names), limit
        self.agents: list[str] = []
        own = {"name": name, "one_reward": team.one_reward, "shared_info": team.shared_info}
        self.metadata = {**type(self).metadata, **own}
        self._place = {agent: m for m, agent in enumerate(team.names)}
        if self._space.state is not None:
            self.state_space = self._space.state

    def observation_space(self, agent: str) -> spaces.Dict:
        return self._space.team.observations[self._place[agent]]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._space.team.actions[self._place[agent]]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self._shown = self._games.reset(seed=seed)[0]
        self.agents = [agent for agent, m in self._place.items() if self._shown[ALIVE][0, m]]
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        acting = self.agents
        given = np.zeros_like(self._games.action_space.sample())
        for agent in acting:
            given[0, self._place[agent]] = actions[agent]
        self._shown, reward, over, late, info = self._games.step(given)
        there = {agent: bool(self._shown[ALIVE][0, m]) for agent, m in self._place.items()}
        self.agents = [] if over[0] or late[0] else [agent for agent in acting if there[agent]]
        of_all = self._space.team.shared_info
        rewards = np.full(len(there), reward[0] / len(acting)) if reward.ndim == 1 else reward[0]
        return (
            self._seen(acting),
            {agent: float(rewards[self._place[agent]]) for agent in acting},
            {agent: not there[agent] for agent in acting},
            {agent: bool(late[0] and there[agent]) for agent in acting},
            {
                agent: {key: x[0] if key in of_all else x[0, self._place[agent]] for key, x in info.items()}
                for agent in acting
            },
        )

    def state(self) -> Array:
        if STATE not in self._shown:
            raise NotImplementedError
        state: Array = self._shown[STATE][0]
        return state

    def close(self) -> None:
        self._games.close()

    def _seen(self, agents: list[str]) -> dict[str, dict[str, Array]]:
        """The observations of these agents, in their own sizes."""
        found = {}
        for agent in agents:
            own = self.observation_space(agent).spaces
            rows = {key: self._shown[key][0, self._place[agent]].astype(own[key].dtype) for key in own}
            found[agent] = {key: row[tuple(slice(size) for size in own[key].shape)] for key, row in rows.items()}
        return found
