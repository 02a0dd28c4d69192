"""Single environments of EnvPool (extra `envpool`), for descriptions and checks; runs step whole pools."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from minding.engine.errors import ConfigError, nearest
from minding.engine.process.installed import import_extra

_FIRST_SEED = 0


class SinglePool(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """A pool of one environment.

    Args:
      env_id: EnvPool's own id.
      **options: options of ``envpool.make_gymnasium``.
    """

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
    """The package `envpool`, if it has the environment.

    Raises:
      MissingExtraError: the package is not installed.
      ConfigError: the package has no such environment; names the nearest.
    """
    envpool: Any = import_extra("envpool", "envpool", "env.backend='envpool'")
    known = envpool.list_all_envs()
    if env_id not in known:
        raise ConfigError(f"env.env_id={env_id!r}: EnvPool has no such environment{nearest(env_id, known)}")
    return envpool


def _first(obs: Any) -> Any:
    """A copy of the row of the only environment."""
    return {key: _first(value) for key, value in obs.items()} if isinstance(obs, dict) else obs[0].copy()
