"""The vector version of an environment that comes with one."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from minding.envs.guards.faults import START_TIMEOUT, Hang, close_env, describe
from minding.envs.guards.watchdog import watched
from minding.envs.single.factory import EnvFactory
from minding.envs.spaces.info import sample_action

_TRIES = 5


def native_env(factory: EnvFactory, num_envs: int) -> VectorEnv[Any, Any, Any]:
    """Creates the vector version."""
    limit = factory.max_episode_steps
    return _make(factory, num_envs, {} if limit is None else {"max_episode_steps": limit})


def native_objection(factory: EnvFactory) -> str:
    """Why the vector version behaves differently from single environments; empty if it does not.

    A single environment is given its time limit by a wrapper. A vector version has to keep it itself, and some accept
    `max_episode_steps` and ignore it. It is tested once, with a limit of one step.
    """
    spec = factory.native_spec
    assert spec is not None
    if factory.max_episode_steps is None and spec.max_episode_steps is None:
        return ""
    try:
        with watched("__init__", factory.name, max(factory.step_timeout, START_TIMEOUT)):
            return "" if _keeps_limit(factory) else "its vector version ignores the time limit (max_episode_steps)"
    except (Exception, Hang) as error:
        return f"its vector version does not take the time limit: {describe(error)}"


def _keeps_limit(factory: EnvFactory) -> bool:
    env = _make(factory, 1, {"max_episode_steps": 1})
    env.action_space.seed(0)
    try:
        for seed in range(_TRIES):
            obs, info = env.reset(seed=seed)
            _, _, terminated, truncated, _ = env.step(sample_action(env, obs, info, np.random.default_rng(seed)))
            if truncated[0] or not terminated[0]:
                return bool(truncated[0])
        return True  # every episode has one step
    finally:
        close_env(env, factory.name)


def _make(factory: EnvFactory, num_envs: int, limit: dict[str, int]) -> VectorEnv[Any, Any, Any]:
    kwargs = {**factory.kwargs, **limit}
    return gymnasium.make_vec(factory.native_spec, num_envs, vectorization_mode="vector_entry_point", **kwargs)
