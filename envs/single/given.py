"""Vector environments that a program made itself, and in which experience is collected directly."""

from __future__ import annotations

from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper

from minding.engine.errors import ConfigError
from minding.envs.single.wrappers import AnyEnv

AnyVectorEnv: TypeAlias = VectorEnv[Any, Any, Any]
_OF_VECTORS = ("num_envs", "vectorization_mode", "vector_kwargs", "wrappers")


class GivenVector:
    """Lends a vector environment to one collector at a time, and makes single environments like those in it.

    Args:
      env: the vector environment, as `gymnasium.make_vec` returned it; its owner has to close it.
    Raises:
      ConfigError: the environment has no spec to rebuild it from, or a `VectorWrapper` wraps the whole vector.
    """

    def __init__(self, env: AnyVectorEnv) -> None:
        what = "evaluation needs single environments of the same kind"
        if not isinstance(env.spec, EnvSpec):
            raise ConfigError(
                f"env={env!r}: {what}, and this one cannot be rebuilt, because it has no spec: make it with "
                "gymnasium.make_vec, or pass an id or a function that makes one environment"
            )
        if isinstance(env, VectorWrapper):
            raise ConfigError(
                f"env={env!r}: {what}, and {type(env).__name__} wraps the whole vector: give the wrappers of single "
                "environments, as in gymnasium.make_vec(..., wrappers=[...]), or name them in env.wrappers"
            )
        self.spec = env.spec
        self._env = env
        self._lent = False

    def __call__(self) -> AnyEnv:
        kwargs = {key: value for key, value in self.spec.kwargs.items() if key not in _OF_VECTORS}
        env = gymnasium.make(self.spec.id, disable_env_checker=True, **kwargs)
        for wrapper in self.spec.kwargs.get("wrappers") or ():
            env = wrapper(env)
        return env

    def holds(self, env: AnyVectorEnv) -> bool:
        """Whether `env` is the object that is lent."""
        return self._env is env

    def lend(self, num_envs: int) -> AnyVectorEnv:
        """Lends the vector environment until the returned object is closed.

        Raises:
          ConfigError: the vector environment is in use or closed, or has another number of environments.
        """
        if num_envs != self._env.num_envs:
            raise ConfigError(
                f"env.collector_env_num={num_envs}: the vector environment that was passed holds {self._env.num_envs}: "
                "leave the setting out"
            )
        if self._lent:
            raise ConfigError(
                f"env: the vector environment of {self.spec.id} is already in use in this program: close the "
                "other agent, or make another one with gymnasium.make_vec"
            )
        if getattr(self._env, "closed", False):
            raise ConfigError(f"env: the vector environment of {self.spec.id} is closed: make another one")
        self._lent = True
        return _Lent(self._env, self)

    def returned(self) -> None:
        """Records that the collector has returned the vector environment."""
        self._lent = False


class _Lent(VectorWrapper[Any, Any, Any, Any, Any]):
    """The vector environment on loan: closing it returns it."""

    def __init__(self, env: AnyVectorEnv, owner: GivenVector) -> None:
        super().__init__(env)
        self._owner = owner

    def close(self, **kwargs: Any) -> None:
        self._owner.returned()
