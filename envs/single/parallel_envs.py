"""Environments of several agents (PettingZoo's parallel interface) as environments with an agents axis.

PettingZoo uses dicts by agent, which lose the entries of agents that leave. Here all agents keep their places in arrays
``(M, ...)``, and `alive` says which agents are present. If the agents' spaces differ in size, the arrays have the
largest size. All backends for single environments can step these environments.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from minding.engine.data.agent_axis import ALIVE, IDENTITY, STATE
from minding.engine.data.observation import ACTION_MASK, OBSERVATION, with_mask
from minding.engine.errors import ConfigError, EnvError, ShapeError, SpaceError
from minding.engine.types import Array
from minding.envs.guards.answers import FLAGS, InterfaceError, as_flag, as_info, brief, reset_answer, step_answer
from minding.envs.guards.faults import describe
from minding.envs.guards.values import PLAIN, as_reward
from minding.envs.spaces.actions import JoinedActions, as_multi_discrete, describe_actions, without_placeholders
from minding.envs.spaces.info import AgentsSpace, Team, action_counts
from minding.envs.spaces.padding import OwnAction, common_action, common_observation, fill_up, legal_entries


def entry_of(infos: Mapping[str, Any], agent: str, key: str) -> Any:
    """A declared entry of an agent's info; ShapeError if it is missing."""
    if key not in as_info(info_of(as_info(infos, key), agent), key):
        raise ShapeError(f"the info of {agent!r} has no entry {key!r}, which env.info_keys declares")
    return infos[agent][key]


def info_of(infos: Any, agent: str) -> Any:
    """The info of an agent; empty if the agent has no info."""
    return infos.get(agent, {}) if isinstance(infos, Mapping) else {}


def by_agent(given: Any, what: str) -> Mapping[str, Any]:
    """A dict by agent; InterfaceError if `given` is anything else."""
    if not isinstance(given, Mapping):
        raise InterfaceError(f"the {what}s of a step are {brief(given)}; expected a dict with one entry per agent")
    return given


def flags_of(given: Any, what: str) -> dict[str, bool]:
    """The flag of each agent, such as its termination, as a bool."""
    return {
        agent: flag if type(flag) in FLAGS else as_flag(flag, f"the {what} of {agent!r}")
        for agent, flag in by_agent(given, what).items()
    }


def check_complete(dicts: Mapping[str, Mapping[str, Any]], agents: Sequence[str]) -> None:
    """Raises EnvError unless each of the agents has an entry in every one of the named dicts."""
    for what, values in dicts.items():
        by_agent(values, what)
        for agent in agents:
            if agent not in values:
                raise EnvError(
                    f"the {what} of agent {agent!r} is missing: expected one for each agent that acted in this step"
                )


_RESERVED = (ALIVE, IDENTITY, STATE)


@dataclasses.dataclass(frozen=True)
class AgentOptions:
    """Options of an environment of several agents."""

    global_state: bool = False
    team_reward: bool = False
    info_keys: tuple[str, ...] = ()
    max_episode_steps: int | None = None


class AgentsEnv(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """A PettingZoo parallel environment with an agents axis.

    Agents have their places in the order of `possible_agents`. While an agent is absent, because it has left or has not
    yet joined, its observation, info and reward are zero, its mask allows all of its own actions, and its action is
    ignored; the step in which it leaves still has its last observation, info and reward. It is a fault if an agent that
    acted, and that is still present or has just ended, lacks its reward, termination or truncation. The episode is over
    when no agent is left: `truncated` if one of the last agents was cut off by a time limit, else `terminated`. For an
    agent that leaves earlier, leaving is a true end.

    After an agent's true end the environment may omit its mask, and after the true end of all the global state, because
    they are no longer used.

    Observations smaller than those of other agents are padded with zeros. Agents with fewer discrete actions than
    others get a mask if they do not have one. The global state is the environment's own `state()`; without that, it is
    the observations of the agents that are present, in sequence, and zeros for the others.

    The metadata of an environment may say that all agents have one reward, the sum of their rewards (``one_reward``),
    and which keys of their infos are about all agents (``shared_info``).
    """

    def __init__(self, env: Any, name: str, options: AgentOptions) -> None:
        self.parallel = env
        self.names: tuple[str, ...] = _agent_names(env, name)
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self._options = options
        self._place = _Places((agent, m) for m, agent in enumerate(self.names))
        seen = {agent: env.observation_space(agent) for agent in self.names}
        actions = {agent: _acted_in(env.action_space(agent)) for agent in self.names}
        self._plain = {agent for agent, space in seen.items() if not isinstance(space, spaces.Dict)}
        self.single_action_space = common_action(actions, name)
        self._act = [OwnAction(agent, actions[agent], self.single_action_space) for agent in self.names]
        self._masked = ACTION_MASK in options.info_keys
        own = {agent: _entries(seen[agent], actions[agent], self._masked, name) for agent in self.names}
        self._legal = _legal(actions, self.single_action_space)
        self._own = {agent: own[agent].spaces for agent in self.names}
        self._one = _common_entries(own, self._legal, name)
        self._joins = options.global_state and not _has_state(env)
        self._has_own_state = options.global_state and not self._joins
        state = _state_space(env, own, name, self._joins) if options.global_state else None
        team = Team(
            self.names, tuple(own.values()), tuple(actions.values()),
            options.team_reward or bool(self.metadata.get("one_reward")), tuple(self.metadata.get("shared_info", ())),
        )  # fmt: skip
        self.info_keys = team.info_keys(options.info_keys)
        self.observation_space = AgentsSpace(team, self._one, self.single_action_space, state)
        one = self.single_action_space
        joined = isinstance(one, JoinedActions)
        self.action_space = JoinedActions(one.tree, len(self.names)) if joined else batch_space(one, len(self.names))
        self._max_episode_steps = _step_limit(env, options.max_episode_steps)
        self._steps = 0
        self._alive = np.zeros(len(self.names), bool)
        self._known: dict[str, Any] = {}
        self._shown: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, infos = reset_answer(self.parallel.reset(seed=seed, options=options), "(observations, infos)")
        self._steps, self._known = 0, {}
        self._alive = self._present(self.parallel.agents)
        if not self._alive.any():
            raise EnvError("`agents` is empty after reset: expected the members of possible_agents that act first")
        return self._observation(obs, infos, self._state()), self._info(infos)

    def step(self, action: Array) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        acting = [agent for agent, alive in zip(self.names, self._alive) if alive]
        actions = {agent: self._act[m](action[m]) for m, agent in enumerate(self.names) if self._alive[m]}
        obs, rewards, ends, cuts, infos = step_answer(self.parallel.step(actions))
        self._steps += 1
        terminations, truncations = flags_of(ends, "termination"), flags_of(cuts, "truncation")
        flagged = {agent for flags in (terminations, truncations) for agent, flag in flags.items() if flag}
        there = {*self.parallel.agents, *by_agent(obs, "observation"), *flagged}
        dicts = {"reward": rewards, "termination": terminations, "truncation": truncations}
        check_complete(dicts, [agent for agent in acting if agent in there])
        reward = np.zeros(len(self.names))
        for agent, value in rewards.items():
            reward[self._place[agent]] = value if type(value) in PLAIN else as_reward(value, f"the reward of {agent!r}")
        ended = self._present(agent for agent in acting if terminations.get(agent) or truncations.get(agent))
        left = self._present(self.parallel.agents) & ~ended
        over = not left.any()
        cut_off = over and any(truncations.get(agent) and not terminations.get(agent) for agent in acting)
        if over:
            # Agents that a time limit stops could have continued, so they are present in the final observation.
            left = self._alive & ~self._present(agent for agent in acting if terminations.get(agent))
        truncated = cut_off or (not over and self._steps == self._options.max_episode_steps)
        self._alive = left
        summed = float(reward.sum()) if self.observation_space.team.one_reward else reward
        state = self._last_state(cut_off) if over and self._has_own_state else self._state()
        return self._observation(obs, infos, state), summed, over and not cut_off, truncated, self._info(infos)

    def render(self) -> Any:
        return self.parallel.render()

    def close(self) -> None:
        self.parallel.close()

    def _present(self, agents: Iterable[str]) -> Array:
        """Which places belong to these agents, bool ``(M,)``; EnvError for an unknown agent."""
        there = np.zeros(len(self.names), bool)
        there[[self._place[agent] for agent in agents]] = True
        return there

    def _state(self) -> Any:
        """The environment's own global state, if the options ask for it."""
        if self._has_own_state:
            self._shown = self.parallel.state()
        return self._shown

    def _last_state(self, cut_off: bool) -> Any:
        """The state after an episode has ended. Some environments cannot return it, since their world is gone. If all
        agents came to a true end, this state is not used, and the previous one replaces it. An episode that was cut off
        needs it: with the previous state, the bootstrap value would be that of one step earlier."""
        before, space = self._shown, self.observation_space.state
        assert space is not None
        try:
            state = self._state()
            if np.shape(state) == space.shape:
                return state
            problem = f"returned {brief(state)}"
        except Exception as error:
            problem = f"raised {describe(error)}"
        if cut_off:
            raise EnvError(
                f"state() {problem} after a time limit had ended the episode, but learning bootstraps from the last "
                "state: keep the world until the next reset, or set env.max_episode_steps below "
                "the environment's own limit"
            )
        self._shown = before
        return before

    def _observation(self, given: Mapping[str, Any], infos: Mapping[str, Any], state: Any) -> dict[str, Any]:
        self._present(given)  # refuses unknown agents
        seen: dict[str, Mapping[str, Any]] = {}
        for agent, obs in given.items():
            entries = {OBSERVATION: obs} if agent in self._plain else obs
            if self._masked and (self._alive[self._place[agent]] or ACTION_MASK in (info_of(infos, agent) or ())):
                entries = with_mask(entries, entry_of(infos, agent, ACTION_MASK))
            seen[agent] = entries
        for agent, alive in zip(self.names, self._alive):
            if alive and agent not in seen:
                raise ShapeError(f"the observation of agent {agent!r} is missing: expected one for each of `agents`")
        joined = {
            key: self._stacked(space, [self._own[agent].get(key) for agent in self.names], seen, (key,))
            for key, space in self._one.spaces.items()
            if key != ACTION_MASK
        }
        if ACTION_MASK in self._one.spaces:
            joined[ACTION_MASK] = np.stack([self._mask(m, seen.get(agent)) for m, agent in enumerate(self.names)])
        joined[ALIVE] = self._alive.copy()
        if self._options.global_state:
            joined[STATE] = self._joined(seen) if self._joins else state
        return joined

    def _stacked(self, space: Any, own: Sequence[Any], seen: Mapping[str, Any], keys: tuple[Any, ...]) -> Any:
        """The entry at `keys` of each agent's observation, ``(M, ...)``; for Dict and Tuple spaces a nested
        entry."""
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            children = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
            found = {
                key: self._stacked(child, [each[key] for each in own], seen, (*keys, key)) for key, child in children
            }
            return found if isinstance(space, spaces.Dict) else tuple(found.values())
        return np.stack(
            [
                fill_up(self._leaf(each, seen.get(agent), agent, keys), tuple(space.shape))
                for agent, each in zip(self.names, own)
            ]
        )

    def _leaf(self, space: Any, value: Any, agent: str, keys: tuple[Any, ...]) -> Array:
        """The entry at `keys` of an agent's observation, in its own shape; zeros if the agent has no observation."""
        if value is None:
            return np.full(space.shape, getattr(space, "start", 0), space.dtype)
        for key in keys:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                raise ShapeError(f"the observation of {agent!r} has no entry {key!r}") from None
        array = np.asarray(value)
        if array.shape != tuple(space.shape):
            label = "observation" if agent in self._plain else f"observation {'.'.join(map(str, keys))!r}"
            raise ShapeError(f"{label} of {agent!r}: expected shape {tuple(space.shape)}, got {array.shape}")
        return array

    def _mask(self, m: int, value: Any) -> Array:
        """The mask of agent m over the common actions: those that the agent has and that are legal."""
        legal, own = self._legal[m], self._own[self.names[m]].get(ACTION_MASK)
        if own is None or not self._alive[m]:
            return legal.astype(np.int8)
        mask = self._leaf(own, value, self.names[m], (ACTION_MASK,))
        if legal.all():
            return mask
        filled = np.zeros(len(legal), mask.dtype)
        filled[legal] = mask
        return filled

    def _joined(self, seen: Mapping[str, Any]) -> Array:
        """The observations of all agents in sequence, float32 ``(S,)``; zeros for absent agents, also for those that
        leave in this step."""
        parts = [
            self._leaf(space, seen.get(agent) if alive else None, agent, (key,)).ravel()
            for agent, alive in zip(self.names, self._alive)
            for key, space in self._own[agent].items()
            if key != ACTION_MASK
        ]
        return np.concatenate(parts).astype(np.float32)

    def _info(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """The declared keys, ``(M, ...)``; zeros for agents without the key. A key that no agent has had is left out.
        The value of a shared key is that of the first agent that has it."""
        joined = {}
        for key in self.info_keys:
            given = as_info(infos, key).items()
            values = {agent: np.asarray(info[key]) for agent, info in given if key in as_info(info, key)}
            if values or key in self._known:
                like = self._known.setdefault(key, np.zeros_like(next(iter(values.values()), 0)))
                if key in self.observation_space.team.shared_info:
                    joined[key] = next(iter(values.values()), like)
                else:
                    joined[key] = np.stack([values.get(agent, like) for agent in self.names])
        return joined


class _Places(dict[str, int]):
    """The place of each agent on the axis."""

    def __missing__(self, agent: str) -> int:
        raise EnvError(
            f"agent {agent!r} is unknown: expected one of {list(self)}; add it to possible_agents, "
            "which must list every agent that can appear"
        )


def _agent_names(env: Any, name: str) -> tuple[str, ...]:
    names = tuple(env.possible_agents)
    if not names:
        raise ConfigError(f"{name}: possible_agents is empty: expected every agent that can appear, in a fixed order")
    return names


def _acted_in(space: spaces.Space[Any]) -> spaces.Space[Any]:
    if isinstance(space, spaces.MultiBinary):
        return as_multi_discrete(space)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return JoinedActions(space)
    return without_placeholders(space) if isinstance(space, spaces.Box) else space


def _entries(space: spaces.Space[Any], action: spaces.Space[Any], masked: bool, name: str) -> spaces.Dict:
    """The entries of one agent's observation as a Dict, with a mask if masks come from the infos."""
    entries = dict(space.spaces) if isinstance(space, spaces.Dict) else {OBSERVATION: space}
    for key in _RESERVED:
        if key in entries:
            raise SpaceError(f"{name}: the agents' observations have an entry {key!r}, a reserved name: rename it")
    if masked:
        entries = with_mask(entries, spaces.MultiBinary(sum(action_counts(action))))
    return spaces.Dict(entries)


def _legal(actions: Mapping[str, spaces.Space[Any]], common: spaces.Space[Any]) -> list[Array]:
    """Which of the common discrete actions each agent has, bool ``(A,)`` each; empty if actions are continuous."""
    choices = describe_actions(common, rescale=False)["kind"] != "box"
    return [legal_entries(space, common) for space in actions.values()] if choices else []


def _common_entries(own: Mapping[str, spaces.Dict], legal: Sequence[Array], name: str) -> spaces.Dict:
    """The entries of one agent's observation in the common size of all agents, with a mask if agents need one."""
    masks = {agent: entries.spaces.get(ACTION_MASK) for agent, entries in own.items()}
    others = {
        agent: spaces.Dict({key: space for key, space in entries.spaces.items() if key != ACTION_MASK})
        for agent, entries in own.items()
    }
    common = common_observation(others, name)
    assert isinstance(common, spaces.Dict)
    first = next(iter(masks.values()))
    if all(entries.all() for entries in legal) and all(mask == first for mask in masks.values()):
        return common if first is None else spaces.Dict({**common.spaces, ACTION_MASK: first})
    for (agent, mask), entries in zip(masks.items(), legal):
        if mask is not None and mask.shape != (entries.sum(),):
            raise SpaceError(
                f"{name}: the {ACTION_MASK!r} of {agent!r} has the shape {mask.shape}: expected one entry for each of "
                f"its {entries.sum()} actions"
            )
    return spaces.Dict({**common.spaces, ACTION_MASK: spaces.MultiBinary(len(legal[0]))})


def _has_state(env: Any) -> bool:
    """Whether an environment offers its global state."""
    if isinstance(getattr(env, "state_space", None), spaces.Box):
        # A reset may be expensive, such as the first one of worlds in JAX, which are compiled then.
        return True
    try:
        env.reset(seed=0)
        env.state()
    except (NotImplementedError, AttributeError):
        return False
    return True


def _state_space(env: Any, own: Mapping[str, spaces.Dict], name: str, joins: bool) -> spaces.Space[Any]:
    """The space of the global state: the declared one, or one for the array that `state()` returns. If observations are
    joined in place of a state, it has the sum of their sizes."""
    if joins:
        seen = [space for entries in own.values() for key, space in entries.spaces.items() if key != ACTION_MASK]
        if not all(isinstance(space, spaces.Box) for space in seen):
            raise ConfigError(
                f"env.global_state: {name} offers no state(), and observations that are not Boxes cannot be joined in "
                "its place: leave it off, or give the environment a state()"
            )
        return spaces.Box(-np.inf, np.inf, (sum(int(np.prod(space.shape)) for space in seen),), np.float32)
    space = getattr(env, "state_space", None)
    if isinstance(space, spaces.Box):
        return space
    state = np.asarray(env.state())
    if state.dtype.kind not in "biuf" or not state.size:
        raise EnvError(f"{name}: state() returned {state!r}; expected an array of numbers")
    return spaces.Box(-np.inf, np.inf, state.shape, np.float32)


def _step_limit(env: Any, wanted: int | None) -> int | None:
    """Steps after which episodes end: the lower of `wanted` and the environment's own `max_cycles`."""
    own = getattr(getattr(env, "unwrapped", env), "max_cycles", None)
    limits = [int(limit) for limit in (own, wanted) if isinstance(limit, (int, np.integer))]
    return min(limits, default=None)
