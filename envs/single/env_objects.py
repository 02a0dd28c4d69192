"""Environments that are objects of a program: classes, functions, instances, vector environments.

Each has an id while the program runs. The id of an object that can be imported is its ``module:Name``, so that another
process can find it. All other objects have ids of the form ``python/NAME``. In a vector environment that the program
made itself, experience is collected directly.
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper

from minding.engine.errors import ConfigError
from minding.envs.single.id_hints import old_gym
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

    def __call__(self, **kwargs: Any) -> AnyEnv:
        given = {key: value for key, value in self.spec.kwargs.items() if key not in _OF_VECTORS}
        env = gymnasium.make(self.spec.id, disable_env_checker=True, **{**given, **kwargs})
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


PREFIX = "python/"
_sources: dict[str, Callable[..., AnyEnv]] = {}


def env_settings_of(env: Any) -> dict[str, Any]:
    """The settings of the section `env` that describe an environment.

    Args:
      env: an id, or ``module:Class``; a class or function that makes an environment from ``env_kwargs``; an environment
        with a ``spec``, of which new copies are made; or a vector environment of `gymnasium.make_vec`, in which
        experience is collected directly.
    Raises:
      ConfigError: `env` is none of these.
    """
    if isinstance(env, str):
        return {"env_id": env}
    if isinstance(env, type) or (callable(env) and not hasattr(env, "observation_space")):
        return {"env_id": id_of(env)}
    if isinstance(env, VectorEnv):
        known = (each for each in _sources.values() if isinstance(each, GivenVector))
        lender = next((each for each in known if each.holds(env)), None) or GivenVector(env)
        env_id = _remember(lender, lender.spec.id.replace("/", "-"))
        return {"env_id": env_id, "collector_env_num": env.num_envs}
    spec = getattr(env, "spec", None)
    if not isinstance(spec, EnvSpec):
        remedy = f"; pass a function, such as lambda: {type(env).__name__}(...)" if hasattr(env, "step") else ""
        raise ConfigError(
            f"env={env!r}: expected an id, 'module:Class', a class or function that makes the environment, or an "
            "environment made by gymnasium.make; training makes several, and this one cannot be copied: it has no spec"
            f"{old_gym(env) or remedy}"
        )
    unmade = [wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None]
    if unmade:
        raise ConfigError(
            f"env={env!r}: training makes several, and this one cannot be copied: its wrapper {unmade[-1]} does not "
            "record its arguments (gymnasium.utils.RecordConstructorArgs); pass a function, such as lambda: "
            f"{unmade[-1]}(gymnasium.make({spec.id!r}))"
        )
    standard = gymnasium.registry.get(spec.id)
    if standard is not None and not spec.additional_wrappers and spec.max_episode_steps == standard.max_episode_steps:
        given = {key: value for key, value in spec.kwargs.items() if standard.kwargs.get(key, ...) != value}
        return {"env_id": spec.id, "env_kwargs": given}
    return {"env_id": _remember(functools.partial(gymnasium.make, spec), spec.id.replace("/", "-"))}


def id_of(source: Callable[..., AnyEnv]) -> str:
    """The id of a class or function; the same object always has the same id."""
    module, name = getattr(source, "__module__", None), getattr(source, "__qualname__", "")
    if module not in (None, "__main__") and name.isidentifier():
        found = getattr(importlib.import_module(module), name, None)
        if found is source:
            return f"{module}:{name}"
    return _remember(source, name.rpartition(".")[2] or type(source).__name__)


def source_of(env_id: str) -> Callable[..., AnyEnv]:
    """The class or function of an id that begins with `PREFIX`.

    Raises:
      ConfigError: this program has not passed an object with that id.
    """
    if env_id not in _sources:
        raise ConfigError(
            f"env.env_id={env_id!r}: it was an object in the program that trained with it, and cannot be imported: "
            "pass it again, as in minding.load(path, env=MyEnv), or name it, as in `minding eval RUN --env "
            "script:MyEnv` for a class in script.py"
        )
    return _sources[env_id]


def adopt(env_id: str, source: Callable[..., AnyEnv]) -> None:
    """Assigns a saved id to an object of this program."""
    _sources[env_id] = source


def _remember(source: Callable[..., AnyEnv], name: str) -> str:
    name = name if name.replace("-", "").replace("_", "").isalnum() else "environment"
    number = 1
    while _sources.get(env_id := f"{PREFIX}{name}" + (f"-{number}" if number > 1 else ""), source) is not source:
        number += 1
    _sources[env_id] = source
    return env_id
