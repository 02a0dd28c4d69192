"""Shared parts of games with one player, N at once or a single one, and of vector environments of several agents."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

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
