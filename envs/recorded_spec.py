"""The description of an environment that is known only from recorded data."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from minding.engine.config.options import short
from minding.engine.data.description import describe
from minding.engine.data.episode import RECORDED
from minding.engine.errors import ConfigError
from minding.envs.config import default_config, env_settings
from minding.envs.single import env_objects
from minding.envs.spaces.actions import JoinedActions, describe_actions, policy_action_space
from minding.envs.spec import describe_env, describe_made, describe_space

_OF_ENVIRONMENTS = (
    "env_kwargs",
    "evaluator_kwargs",
    "wrappers",
    "info_keys",
    "max_episode_steps",
    "single_instance",
    "global_state",
    "team_reward",
    "normalize_reward",
    "reward_clip",
    "episodic_life",
    "backend",
)
"""Settings that change an environment, and that recorded data therefore refuse."""


def describe_recorded(env_cfg: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The description (see `describe_env`) for ``env.env_id=data``: spaces and limits are those of recorded data."""
    defaults = default_config()
    for key in _OF_ENVIRONMENTS:
        if env_cfg[key] != defaults[key]:
            raise ConfigError(
                f"env.{key}={short(env_cfg[key])} has no effect with env.env_id={RECORDED}: there is no environment, "
                "and recorded data are used unchanged; leave the setting out"
            )
    action = action_space(recorded["env_action"])
    rescale = env_cfg["rescale_action"]
    return {
        "observation": recorded["observation"],
        "action": describe_space(policy_action_space(action, rescale=rescale)),
        "env_action": describe_actions(action, rescale=rescale),
        "max_episode_steps": recorded["max_episode_steps"],
        "num_agents": 1,
    }


def describe_environment(env: Any) -> dict[str, Any]:
    """The description of an environment for recorded data, see `engine.data.description.describe`."""
    if isinstance(env, VectorEnv) or not (isinstance(env, str | gymnasium.Env) or callable(env)):
        what = "a vector environment" if isinstance(env, VectorEnv) else short(env)
        raise ConfigError(
            f"env={what}: expected the id of an environment, such as 'Pendulum-v1', an environment, or a class or "
            "function that makes one"
        )
    if isinstance(env, gymnasium.Env):
        settings = env_settings({"env_id": RECORDED} if env.spec is None else _registered(env))
        spec = describe_made(env, settings)
    else:
        settings = env_settings(env_objects.env_settings_of(env))
        if settings["env_id"] == RECORDED:
            raise ConfigError(f"env={RECORDED!r} stands for recorded data: expected the id of an environment")
        spec = describe_env(settings)
    if "agents" in spec:
        raise ConfigError(
            f"env={settings['env_id']!r} has several agents, but recorded data hold the steps of one agent: choose an "
            "environment with one agent"
        )
    return describe({**settings, "spec": spec})


def _registered(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """The settings with the id of an environment that has a spec, whatever it is wrapped in."""
    found = env_objects.env_settings_of(env)
    if found["env_id"].startswith(env_objects.PREFIX) and env.spec is not None:
        return {"env_id": env.spec.id}
    return found


def observation_space(described: Mapping[str, Any]) -> spaces.Space[Any]:
    """The observation space that a description by `envs.spec.describe_observation` describes."""
    kind = described["kind"]
    if kind == "dict":
        return spaces.Dict({key: observation_space(each) for key, each in described["spaces"].items()})
    if kind == "tuple":
        return spaces.Tuple([observation_space(each) for each in described["spaces"]])
    if kind == "box":
        dtype = np.dtype(described["dtype"]).type
        low, high = (np.broadcast_to(np.asarray(described[end], dtype), described["shape"]) for end in ("low", "high"))
        return spaces.Box(low, high, tuple(described["shape"]), dtype)
    if kind == "discrete":
        return spaces.Discrete(described["n"], start=described["start"])
    if kind == "multi_discrete":
        return spaces.MultiDiscrete(described["nvec"])
    return spaces.MultiBinary(sum(described["counts"]) if kind == "action_mask" else described["shape"])


def action_space(described: Mapping[str, Any]) -> spaces.Space[Any]:
    """The action space that a description by `describe_actions` describes."""
    if "tree" in described:
        return JoinedActions(_tree_space(described["tree"]))
    shape, dtype = tuple(described["shape"]), np.dtype(described["dtype"]).type
    if described["kind"] == "box":
        low, high = (np.broadcast_to(np.asarray(described[end], dtype), shape) for end in ("low", "high"))
        return spaces.Box(low, high, shape, dtype)
    if described["kind"] == "discrete":
        return spaces.Discrete(described["n"], start=described["start"])
    nvec, start = np.asarray(described["nvec"]), np.asarray(described["start"])
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=start)


def _tree_space(tree: Mapping[str, Any]) -> spaces.Space[Any]:
    if tree["kind"] == "tuple":
        return spaces.Tuple([_tree_space(part) for part in tree["spaces"]])
    if tree["kind"] == "dict":
        return spaces.Dict({key: _tree_space(part) for key, part in tree["spaces"].items()})
    return action_space(tree)
