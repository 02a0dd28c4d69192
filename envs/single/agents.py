"""Environments of several agents (PettingZoo's parallel interface) as environments with an agents axis.

PettingZoo speaks in dicts by agent, which lose their entries when agents leave. Here all agents keep their places in
arrays ``(M, ...)``, and `alive` says who is there. What steps single environments steps these as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from minding.engine.data.agents import ALIVE, STATE
from minding.engine.data.masks import ACTION_MASK, OBSERVATION, with_mask
from minding.engine.errors import ConfigError, EnvError, ShapeError, SpaceError
from minding.engine.types import Array
from minding.envs.spaces.agents import AgentsSpace
from minding.envs.spaces.info import action_counts

_RESERVED = (ALIVE, STATE)


@dataclasses.dataclass(frozen=True)
class AgentOptions:
    """What is asked of an environment of several agents.

    Attributes:
      global_state: the state of the whole environment becomes a part of the observation.
      team_reward: the sum of the agents' rewards takes their place.
      info_keys: keys of the agents' infos that travel with the step; an action mask enters the observation.
      max_episode_steps: steps after which an episode is truncated, None for the environment's own limit.
    """

    global_state: bool = False
    team_reward: bool = False
    info_keys: tuple[str, ...] = ()
    max_episode_steps: int | None = None


class AgentsEnv(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """A PettingZoo parallel environment with an agents axis.

    Each agent has its place in the order of `possible_agents`. Where one is missing, because it has left or has not
    come yet, its observation, info and reward are zero, its mask allows everything, and its action is ignored. It is
    a fault if one that acted, and that is still there or has just ended, lacks its reward, termination or truncation.
    The episode is over when no agent is left: `truncated` if one of the last was cut off by a time limit, else
    `terminated`. An agent that leaves before that has come to its own true end.

    Args:
      env: it tells `possible_agents`; their spaces are all the same.
      name: how messages call it.
      options: see `AgentOptions`.
    Raises:
      ConfigError, SpaceError: the environment cannot be used, or not with these options.
    """

    def __init__(self, env: Any, name: str, options: AgentOptions) -> None:
        self.parallel = env
        self.names: tuple[str, ...] = _agent_names(env, name)
        self._options = options
        self._place = _Places((agent, m) for m, agent in enumerate(self.names))
        observation = _same_space(env.observation_space, self.names, "observe", name)
        self.single_action_space = _same_space(env.action_space, self.names, "act in", name)
        self._masked = ACTION_MASK in options.info_keys
        self._infos = tuple(key for key in options.info_keys if key != ACTION_MASK)
        self._one = _entries(observation, self.single_action_space, self._masked, name)
        self._plain = not isinstance(observation, spaces.Dict)
        state = _state_space(env, name) if options.global_state else None
        self.observation_space = AgentsSpace(
            self.names, self._one, self.single_action_space, state, options.team_reward
        )
        self.action_space = batch_space(self.single_action_space, len(self.names))
        self._discrete = isinstance(self.single_action_space, spaces.Discrete)
        self._max_episode_steps = _step_limit(env, options.max_episode_steps)
        self._steps = 0
        self._alive = np.zeros(len(self.names), bool)
        self._known: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        given = self.parallel.reset(seed=seed, options=options)
        if not isinstance(given, tuple) or len(given) != 2:
            raise TypeError(f"expected (observations, infos), got {type(given).__name__}")
        obs, infos = given
        self._steps, self._known = 0, {}
        self._alive = self._present(self.parallel.agents)
        if not self._alive.any():
            raise EnvError(
                "reset gave no agents: `agents` is empty after it; expected those of possible_agents that act first"
            )
        return self._observation(obs, infos), self._info(infos)

    def step(self, action: Array) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        acting = [agent for agent, alive in zip(self.names, self._alive) if alive]
        actions = {agent: self._action(action[self._place[agent]]) for agent in acting}
        obs, rewards, terminations, truncations, infos = self.parallel.step(actions)
        self._steps += 1
        there = {*self.parallel.agents, *obs, *_true(terminations), *_true(truncations)}
        told = {"reward": rewards, "termination": terminations, "truncation": truncations}
        _check_told(told, [agent for agent in acting if agent in there])
        reward = np.zeros(len(self.names))
        for agent, value in rewards.items():
            reward[self._place[agent]] = value
        ended = self._present(agent for agent in acting if terminations.get(agent) or truncations.get(agent))
        left = self._present(self.parallel.agents) & ~ended
        over = not left.any()
        cut_off = over and any(truncations.get(agent) and not terminations.get(agent) for agent in acting)
        if over:
            # Those that a time limit stops could have gone on: they are there in the final observation.
            left = self._alive & ~self._present(agent for agent in acting if terminations.get(agent))
        truncated = cut_off or (not over and self._steps == self._options.max_episode_steps)
        self._alive = left
        summed = float(reward.sum()) if self._options.team_reward else reward
        return self._observation(obs, infos), summed, over and not cut_off, truncated, self._info(infos)

    def render(self) -> Any:
        return self.parallel.render()

    def close(self) -> None:
        self.parallel.close()

    def _action(self, action: Any) -> Any:
        return int(action) if self._discrete else action

    def _present(self, agents: Any) -> Array:
        """Bool ``(M,)``: which of all agents these are."""
        there = np.zeros(len(self.names), bool)
        there[[self._place[agent] for agent in agents]] = True
        return there

    def _observation(self, given: Mapping[str, Any], infos: Mapping[str, Any]) -> dict[str, Any]:
        self._present(given)  # refuses strangers
        seen = {}
        for agent, obs in given.items():
            entries = {OBSERVATION: obs} if self._plain else obs
            if self._masked:
                entries = with_mask(entries, _entry(infos, agent, ACTION_MASK))
            seen[agent] = entries
        for agent, alive in zip(self.names, self._alive):
            if alive and agent not in seen:
                raise ShapeError(f"there is no observation of {agent!r}, who is among the agents")
        joined = {key: self._stacked(space, seen, (key,)) for key, space in self._one.spaces.items()}
        joined[ALIVE] = self._alive.copy()
        if self._options.global_state:
            joined[STATE] = self.parallel.state()
        return joined

    def _stacked(self, space: Any, seen: Mapping[str, Any], keys: tuple[Any, ...]) -> Any:
        """The entry at `keys` of each agent's observation, ``(M, ...)``; for Dict and Tuple spaces nested alike."""
        if isinstance(space, spaces.Dict):
            return {key: self._stacked(child, seen, (*keys, key)) for key, child in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._stacked(child, seen, (*keys, i)) for i, child in enumerate(space.spaces))
        return np.stack([self._leaf(space, seen.get(agent), agent, keys) for agent in self.names])

    def _leaf(self, space: Any, value: Any, agent: str, keys: tuple[Any, ...]) -> Array:
        if keys == (ACTION_MASK,) and not self._alive[self._place[agent]]:
            return np.ones(space.shape, space.dtype)
        if value is None:
            return np.full(space.shape, getattr(space, "start", 0), space.dtype)
        for key in keys:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                raise ShapeError(f"the observation of {agent!r} has no entry {key!r}") from None
        array = np.asarray(value)
        if array.shape != tuple(space.shape):
            label = "observation" if self._plain else f"observation {'.'.join(map(str, keys))!r}"
            raise ShapeError(f"{label} of {agent!r}: expected shape {tuple(space.shape)}, got {array.shape}")
        return array

    def _info(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """The declared keys, ``(M, ...)``; zeros for agents that say nothing. A key that no agent has is left out."""
        joined = {}
        for key in self._infos:
            told = {agent: np.asarray(info[key]) for agent, info in infos.items() if key in info}
            if told or key in self._known:
                like = self._known.setdefault(key, np.zeros_like(next(iter(told.values()), 0)))
                joined[key] = np.stack([told.get(agent, like) for agent in self.names])
        return joined


class _Places(dict[str, int]):
    """The place of each agent on the axis."""

    def __missing__(self, agent: str) -> int:
        raise EnvError(
            f"agent {agent!r} is unknown: expected one of {list(self)}; name it in possible_agents, "
            "where all agents belong that there can be"
        )


def is_parallel(env: Any) -> bool:
    """Whether an object has PettingZoo's parallel interface."""
    return hasattr(env, "possible_agents") and not hasattr(env, "agent_iter")


def refuse_aec(env: Any, name: str) -> None:
    """ConfigError for PettingZoo's interface of agents that act one after the other."""
    if hasattr(env, "agent_iter"):
        raise ConfigError(
            f"env.env_id={name!r} gives an AEC environment, whose agents act one after the other; expected one with "
            "the parallel interface: name its parallel_env, or convert it with pettingzoo.utils.aec_to_parallel"
        )


def _agent_names(env: Any, name: str) -> tuple[str, ...]:
    names = tuple(env.possible_agents)
    if not names:
        raise ConfigError(f"{name} names no possible_agents: expected all agents that there can be, in a fixed order")
    return names


def _same_space(space_of: Callable[[str], Any], names: Sequence[str], verb: str, name: str) -> Any:
    """The space that all agents share.

    Raises:
      SpaceError: they do not.
    """
    first = space_of(names[0])
    for agent in names[1:]:
        other = space_of(agent)
        if other != first:
            raise SpaceError(
                f"{name}: the agents {verb} different spaces, {names[0]!r} {first}, {agent!r} {other}: all agents of "
                "an environment share one network and need the same spaces; pad them to one size with a wrapper"
            )
    return first


def _entries(space: spaces.Space[Any], action: spaces.Space[Any], masked: bool, name: str) -> spaces.Dict:
    """The entries of one agent's observation as a Dict, with its mask where that comes from the infos."""
    entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {OBSERVATION: space}
    for key in _RESERVED:
        if key in entries:
            raise SpaceError(f"{name}: the agents' observations have an entry {key!r}, a reserved name: rename it")
    if masked:
        entries = with_mask(entries, spaces.MultiBinary(sum(action_counts(action))))
    return spaces.Dict(entries)


def _state_space(env: Any, name: str) -> spaces.Space[Any]:
    """The space of `env.state()`: as declared, or by what it returns after a reset."""
    space = getattr(env, "state_space", None)
    if isinstance(space, spaces.Box):
        return space
    try:
        env.reset(seed=0)
        state = np.asarray(env.state())
    except (NotImplementedError, AttributeError):
        raise ConfigError(f"env.global_state: {name} offers no state(); leave it off") from None
    if state.dtype.kind not in "biuf" or not state.size:
        raise EnvError(f"{name}: state() returned {state!r}; expected an array of numbers")
    return spaces.Box(-np.inf, np.inf, state.shape, np.float32)


def _step_limit(env: Any, wanted: int | None) -> int | None:
    """Steps after which episodes end: `wanted`, or the environment's own `max_cycles`; the lower of both."""
    own = getattr(getattr(env, "unwrapped", env), "max_cycles", None)
    limits = [int(limit) for limit in (own, wanted) if isinstance(limit, (int, np.integer))]
    return min(limits, default=None)


def _entry(infos: Mapping[str, Any], agent: str, key: str) -> Any:
    if key not in infos.get(agent, {}):
        raise ShapeError(f"the info of {agent!r} has no entry {key!r}, which env.info_keys declares")
    return infos[agent][key]


def _true(flags: Mapping[str, Any]) -> list[str]:
    return [agent for agent, flag in flags.items() if flag]


def _check_told(told: Mapping[str, Mapping[str, Any]], agents: Sequence[str]) -> None:
    """EnvError unless each of the agents has its entry in all that a step told; the keys of `told` name it."""
    for what, values in told.items():
        for agent in agents:
            if agent not in values:
                raise EnvError(
                    f"there is no {what} of {agent!r}, who acted in this step: expected one for each that did"
                )
