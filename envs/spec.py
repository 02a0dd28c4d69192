"""Plain descriptions of environments as policies see them: spaces, time limit, number of agents."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data.action_trees import COMPOSITE
from minding.engine.data.observation import ACTION_MASK, LEGAL_ACTION, OBSERVATION, observation_leaves
from minding.engine.errors import SpaceError
from minding.envs.config import env_settings
from minding.envs.guards.faults import Hang
from minding.envs.guards.watchdog import watched
from minding.envs.single.env_objects import PREPROCESSING
from minding.envs.single.factory import EnvFactory, env_factory
from minding.envs.single.parallel_envs import AgentsEnv, info_of
from minding.envs.single.wrappers import AnyEnv
from minding.envs.spaces.actions import CompositeSpace, describe_actions, policy_action_space
from minding.envs.spaces.info import INFO, AgentsSpace, Masks, WithInfo, agents_space
from minding.envs.spaces.layout import ObsLayout

# The bounds of larger boxes (images) are described by one pair of numbers.
_MAX_LISTED_BOUNDS = 64


def describe_env(env_cfg: Mapping[str, object], env_fn: Callable[..., AnyEnv] | None = None) -> dict[str, object]:
    """Describes an environment as policies see it, in values that JSON and YAML can hold.

    The description is that of the environment after wrappers and action rescaling.

    Args:
      env_cfg: the `env` section of a configuration; missing keys take their defaults.
      env_fn: function that makes the environment, in place of `env_cfg.env_id`.
    Returns:
      ``{'observation': space, 'action': space, 'env_action': space, 'max_episode_steps': int | None,
      'num_agents': 1}``: the policy's observation and action spaces as in `describe_space`, and the environment's own
      action space as in `describe_actions`. An action mask is ``{'kind': 'action_mask', 'counts': entries of each
      choice}`` in the observation; other declared keys of info are under ``'info'``. With several agents all of these
      describe each agent, in the common sizes of all agents, and ``'agents'`` is ``{'names': list, 'spaces': list of
      {'observation': space, 'action': space}, each agent's own, 'state': space | None, 'team_reward': bool}``.
    Raises:
      ConfigError: if the environment is unknown or the section is wrong.
      SpaceError: for spaces that do not have an array form.
    """
    settings = env_settings(env_cfg)
    factory = env_factory(settings, env_fn, training=True)
    env = factory()
    try:
        factory.check_lives(env)
        return describe_made(env, settings)
    finally:
        factory.close(env)


def describe_made(env: AnyEnv, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The description, as by `describe_env`, of an environment that was made from these complete settings."""
    spaces_of_it = describe_spaces(env.observation_space, env.action_space, rescale=settings["rescale_action"])
    return {**spaces_of_it, "max_episode_steps": episode_limit(env)}


def describe_spaces(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], *, rescale: bool
) -> dict[str, Any]:
    """The part of `describe_env` that follows from an environment's spaces."""
    team = agents_space(observation_space)
    if team is None:
        observation, action = describe_observation(observation_space, action_space), action_space
    else:
        ObsLayout(observation_space)  # raises for spaces that managers refuse
        observation, action = describe_observation(team.one_observation, team.one_action), team.one_action
    return {
        "observation": observation,
        "action": describe_space(policy_action_space(action, rescale=rescale)),
        "env_action": describe_actions(action, rescale=rescale),
        "num_agents": 1 if team is None else len(team.names),
        **_described_info(observation_space, team),
        **({} if team is None else {"agents": _described_agents(team, rescale)}),
    }


def undeclared_mask(factory: EnvFactory, env: AnyEnv) -> str | None:
    """The key of `info` under which a new environment gives its legal actions, although ``env.info_keys`` does not
    declare it; None if there is none. The environment is reset."""
    description = describe_spaces(env.observation_space, env.action_space, rescale=False)
    masked = any(leaf.is_mask for leaf in observation_leaves(description["observation"]))
    if masked or description["action"]["kind"] == "box":
        return None
    try:
        with watched("reset", factory.name, factory.step_timeout):
            if isinstance(env, AgentsEnv):
                _, by_agent = env.parallel.reset(seed=0)
                infos = [info_of(by_agent, agent) for agent in env.names]
            else:
                infos = [Masks(env)(env.reset(seed=0)[1])]
        return next((key for key in (ACTION_MASK, LEGAL_ACTION) if all(key in info for info in infos)), None)
    except (Exception, SystemExit, Hang):
        # A fault is reported where it happens in the environments of the run.
        return None


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """Describes a space in plain values, such as ``{'kind': 'discrete', 'n': 2, 'start': 0}``; SpaceError for a kind
    other than Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple."""
    if isinstance(space, spaces.Box):
        listed = int(np.prod(space.shape)) <= _MAX_LISTED_BOUNDS
        return {
            "kind": "box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": space.low.tolist() if listed else space.low.min().item(),
            "high": space.high.tolist() if listed else space.high.max().item(),
        }
    if isinstance(space, CompositeSpace):
        bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
        return {"kind": COMPOSITE, "shape": list(space.shape or ()), "dtype": "float32", "nvec": space.nvec, **bounds}
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        # Policies see several axes as one axis.
        return {"kind": "multi_discrete", "nvec": space.nvec.ravel().tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        return {"kind": "dict", "spaces": {key: describe_space(space[key]) for key in sorted(space.spaces)}}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "spaces": [describe_space(item) for item in space.spaces]}
    raise SpaceError(
        f"space {space} is not supported; expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"
    )


def describe_observation(space: spaces.Space[Any], action_space: spaces.Space[Any] | None = None) -> dict[str, Any]:
    """Like `describe_space`, but as policies get observations: floats are float32, discrete values count from 0."""
    layout = ObsLayout(space, action_space)  # raises for spaces that managers refuse
    description = describe_space(space[OBSERVATION] if isinstance(space, WithInfo) else space)
    for mask in layout.leaves:
        if mask.choices:
            description["spaces"][mask.path] = {"kind": "action_mask", "counts": list(mask.choices)}
    if description["kind"] == "dict" and [*description["spaces"]] == [ACTION_MASK]:
        raise SpaceError(f"the observation has no entry but {ACTION_MASK!r}: add one for the policy to observe")
    _as_handed_out(description)
    for leaf in observation_leaves(description):
        if leaf.has_channels_last:
            raise SpaceError(
                f"observation {leaf.path or 'space'} {tuple(leaf.space['shape'])} is an image with its channels last, "
                f"but policies expect (C, H, W): {_channels_first(leaf.space['shape'])}"
            )
    return description


def _channels_first(shape: Sequence[int]) -> str:
    if tuple(shape) in ((210, 160, 3), (250, 160, 3)):
        return f"a game of Atari needs {PREPROCESSING}"
    return "add channel_first to env.wrappers, before frame_stack"


def _described_agents(space: AgentsSpace, rescale: bool) -> dict[str, Any]:
    team = space.team
    own = [
        {
            "observation": describe_observation(observation, action),
            "action": describe_space(policy_action_space(action, rescale=rescale)),
        }
        for observation, action in zip(team.observations, team.actions)
    ]
    state = None if space.state is None else describe_observation(space.state)
    return {"names": list(team.names), "spaces": own, "state": state, "team_reward": team.one_reward}


def _described_info(space: spaces.Space[Any], agents: AgentsSpace | None) -> dict[str, Any]:
    """The declared info of `WithInfo`, for one agent, as an entry of a description; empty for other spaces."""
    if not isinstance(space, WithInfo):
        return {}
    described = {}
    for key, entry in space[INFO].items():
        each = agents is not None and key not in agents.team.shared_info
        described[key] = {"shape": list(entry.shape or ())[each:], "dtype": str(entry.dtype)}
    return {INFO: described}


def episode_limit(env: AnyEnv) -> int | None:
    """Steps after which episodes are truncated; None without a limit."""
    limits = []
    layer: Any = env
    while layer is not None:
        limits.append(vars(layer).get("_max_episode_steps"))
        layer = getattr(layer, "env", None) if layer is not env.unwrapped else None
    known = [int(limit) for limit in limits if isinstance(limit, (int, np.integer)) and limit > 0]
    return min(known) if known else None


def _as_handed_out(description: dict[str, Any]) -> None:
    kind = description["kind"]
    if kind == "box" and description["dtype"].startswith("float"):
        description["dtype"] = "float32"
    elif kind == "discrete":
        description["start"] = 0
    elif kind == "dict":
        for item in description["spaces"].values():
            _as_handed_out(item)
    elif kind == "tuple":
        for item in description["spaces"]:
            _as_handed_out(item)
