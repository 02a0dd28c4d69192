"""EnvPool (extra `envpool`): its C++ environments as a vector environment, and a single one for checks."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from minding.engine.errors import ConfigError, nearest
from minding.engine.process.packages import import_extra
from minding.envs.backends.group import episode_seed

_FIRST_SEED = 0


class SinglePool(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """A pool of one environment."""

    def __init__(self, env_id: str, **options: Any) -> None:
        self._env_id, self._options = env_id, options
        self._pool = self._made(_FIRST_SEED)
        self.observation_space = self._pool.observation_space
        self.action_space = self._pool.action_space
        self._max_episode_steps = int(self._pool.spec.config.max_episode_steps)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            # A pool takes its seed at creation.
            self._pool.close()
            self._pool = self._made(seed)
        obs, _ = self._pool.reset()
        return _first(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self._pool.step(np.asarray(action)[None])
        return _first(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        self._pool.close()

    def _made(self, seed: int) -> Any:
        return package_of(self._env_id).make_gymnasium(self._env_id, num_envs=1, seed=seed, **self._options)


def package_of(env_id: str) -> Any:
    """The package `envpool`, if it has the environment."""
    envpool: Any = import_extra("envpool", "envpool", "env.backend='envpool'")
    known = envpool.list_all_envs()
    if env_id not in known:
        raise ConfigError(f"env.env_id={env_id!r}: EnvPool has no such environment{nearest(env_id, known)}")
    return envpool


def _first(obs: Any) -> Any:
    """A copy of the row of the only environment."""
    return {key: _first(value) for key, value in obs.items()} if isinstance(obs, dict) else obs[0].copy()


class EnvPoolVectorEnv(VectorEnv[Any, Any, Any]):  # type: ignore[misc]
    """EnvPool takes its seed at creation, and resets ended environments in their next step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, make: Any, num_envs: int, seed: int) -> None:
        self._make = make
        self._seed = seed
        self._pool = make(seed=seed)
        self.num_envs = num_envs
        self.single_observation_space = self._pool.observation_space
        self.single_action_space = self._pool.action_space
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None and seed != self._seed:
            self._seed = seed
            self._pool.close()
            self._pool = self._make(seed=seed)
        return self._pool.reset()  # type: ignore[no-any-return]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self._pool.step(actions)  # type: ignore[no-any-return]

    def close_extras(self, **kwargs: Any) -> None:
        self._pool.close()


def check_envpool(settings: Mapping[str, Any]) -> Any:
    """Returns the `envpool` package, if it can make the environment of these settings."""
    package = package_of(settings["env_id"])
    if settings["wrappers"]:
        raise ConfigError(
            "env.wrappers: EnvPool's environments take no wrappers; use its own options in env.env_kwargs"
        )
    return package


def envpool_vector_env(settings: Mapping[str, Any], num_envs: int, seed: int) -> EnvPoolVectorEnv:
    """Makes the pool of ``env.env_id``; raises the errors of `check_envpool`."""
    envpool, env_id = check_envpool(settings), settings["env_id"]
    options = dict(settings["env_kwargs"], num_envs=num_envs)
    if settings["max_episode_steps"] is not None:
        options["max_episode_steps"] = settings["max_episode_steps"]

    def make(seed: int) -> Any:
        return envpool.make_gymnasium(env_id, seed=seed, **options)

    return EnvPoolVectorEnv(make, num_envs, episode_seed(seed, 0, 0))
