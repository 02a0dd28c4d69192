"""Declared keys of `info` (``env.info_keys``), joined to the observation so that they are passed on with it.

The observation and the info of a step become one value, whose space is `WithInfo`. An `action_mask` becomes an entry of
the observation (see `engine.data.observation`); other keys stay beside the observation. After a reset only the mask has
values: the other keys describe a step, and are zero. So are keys that only some steps have, such as the last one of an
episode, in the other steps. Several agents have an `AgentsSpace`.
"""

import contextlib
import dataclasses
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from minding.engine.data.agent_axis import ALIVE, STATE
from minding.engine.data.observation import ACTION_MASK, OBSERVATION, random_legal, with_mask
from minding.engine.errors import ConfigError, ShapeError, SpaceError, nearest
from minding.engine.types import Array
from minding.envs.guards.answers import FLAGS, InterfaceError, as_info, brief, reset_answer, step_answer
from minding.envs.spaces.actions import JoinedActions, as_multi_discrete, describe_actions, without_placeholders

INFO = "info"
_METHOD = "action_masks"
_log = logging.getLogger("minding.envs")
_PROBE_SEED = 0
# A key that no step has in so many episodes is an error; in so many steps or seconds without them, it is a number.
_EPISODES = 3
_LONGEST = 20_000
_SECONDS = 10.0


class WithInfo(spaces.Dict):
    """The observation of one step with info: ``{'observation': ..., 'info': Dict}``."""

    def contains(self, x: Any) -> bool:
        """Whether the observation fits; info is not checked."""
        return bool(self[OBSERVATION].contains(x[OBSERVATION]))


@dataclasses.dataclass(frozen=True)
class InfoForm:
    """The declared keys of `info`, and their form."""

    masked: bool
    fields: Mapping[str, spaces.Space[Any]]
    choices: int = 0
    rare: frozenset[str] = frozenset()

    @property
    def keys(self) -> tuple[str, ...]:
        return (*((ACTION_MASK,) if self.masked else ()), *self.fields)

    def space(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> spaces.Space[Any]:
        """The space of the values that `join` returns."""
        if self.masked:
            entries = observation.spaces if isinstance(observation, spaces.Dict) else observation
            observation = spaces.Dict(with_mask(entries, spaces.MultiBinary(sum(action_counts(action)))))
        if not self.fields:
            return observation
        return WithInfo({OBSERVATION: observation, INFO: spaces.Dict(dict(self.fields))})

    def join(self, obs: Any, info: Mapping[str, Any], *, reset: bool = False, over: bool = False) -> Any:
        """The observation with the declared info."""
        if self.masked:
            missing = over and ACTION_MASK not in as_info(info, ACTION_MASK)
            obs = with_mask(obs, np.ones(self.choices, np.int8) if missing else _entry(info, ACTION_MASK))
        if not self.fields:
            return obs
        # A reset does not describe a step, even if its info has the key, and it may have no info at all.
        values = {}
        for key, space in self.fields.items():
            lacks = reset or (key in self.rare and key not in as_info(info, key))
            values[key] = np.zeros(space.shape or (), space.dtype) if lacks else _entry(info, key)
        return {OBSERVATION: obs, INFO: values}

    def join_batch(self, obs: Any, info: Mapping[str, Any], num_envs: int, *, reset: bool = False) -> Any:
        """`join` for a batch of a vector environment; rows without a declared key are zero, as in Gymnasium's
        infos."""
        if self.masked:
            obs = with_mask(obs, _entry(info, ACTION_MASK))
        if not self.fields:
            return obs
        zeros = {key: np.zeros((num_envs, *(space.shape or ())), space.dtype) for key, space in self.fields.items()}
        values = {key: zero if reset else _batch(as_info(info, key).get(key, zero)) for key, zero in zeros.items()}
        return {OBSERVATION: obs, INFO: values}


class Masks:
    """Adds the mask of an environment's method `action_masks` (the name in sb3-contrib) to infos without a mask."""

    def __init__(self, env: Any) -> None:
        self._read: Callable[[], Any] | None = None
        vector = hasattr(env, "num_envs")
        raw = env.unwrapped if vector else env
        find = getattr(raw, "get_wrapper_attr", None)
        with contextlib.suppress(AttributeError):
            self._read = find(_METHOD) if find is not None else getattr(raw, _METHOD)
        if self._read is None and vector and hasattr(raw, "call") and all(raw.call("has_wrapper_attr", _METHOD)):
            # A vector environment of Gymnasium passes calls on to the environments in it.
            self._read = lambda: np.stack(raw.call(_METHOD))

    def __call__(self, info: Any) -> Any:
        """The info with the mask of the present state."""
        if self._read is None or not isinstance(info, Mapping) or ACTION_MASK in info:
            return info
        return {**info, ACTION_MASK: self._read()}


class JoinInfo(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """Joins the declared keys of `info` to observations, see `InfoForm`."""

    def __init__(self, env: Any, form: InfoForm) -> None:
        super().__init__(env)
        self.form = form
        self.observation_space = form.space(env.observation_space, env.action_space)
        self._masks = Masks(env) if form.masked else _unchanged

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        obs, info = reset_answer(self.env.reset(seed=seed, options=options))
        info = self._masks(info)
        return self.form.join(obs, info, reset=True), info

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any]:
        obs, reward, terminated, truncated, info = step_answer(self.env.step(action))
        info = self._masks(info)
        over = type(terminated) in FLAGS and bool(terminated)
        return self.form.join(obs, info, over=over), reward, terminated, truncated, info


def _unchanged(info: Any) -> Any:
    return info


def probe(env: Any, keys: Sequence[str], name: str) -> InfoForm:
    """Finds the form of the declared keys in an environment, single or vector, by a reset and, if needed, steps. If the
    first step lacks a key, random steps follow until a step has it, to the end of a few episodes. If no episode ends in
    reasonable time, the key is taken for a number, with a warning."""
    try:
        return _probed(env, keys, name)
    except InterfaceError as error:
        raise InterfaceError(f"{name}: {error}") from error


def _probed(env: Any, keys: Sequence[str], name: str) -> InfoForm:
    others = [key for key in keys if key != ACTION_MASK]
    masked = len(others) < len(keys)
    choices = sum(action_counts(_action_space(env))) if masked else 0
    masks = Masks(env) if masked else _unchanged
    obs, info = reset_answer(env.reset(seed=_PROBE_SEED))
    info = masks(info)
    if masked and ACTION_MASK not in as_info(info, ACTION_MASK):
        raise ConfigError(_missing(name, ACTION_MASK, "its reset", info))
    found, rare = _found(env, others, name, obs, info, masks) if others else ({}, frozenset())
    for key, value in found.items():
        if value.dtype.kind not in "biuf":
            raise ConfigError(
                f"env.info_keys: {name} gives {brief(value.tolist())} under {key!r}; expected a number, a bool or an "
                "array of them"
            )
    fields = {key: _space_of(found[key].shape, found[key].dtype) for key in others}
    return InfoForm(masked, fields, choices, rare)


def _found(
    env: Any, keys: Sequence[str], name: str, obs: Any, info: Any, masks: Callable[[Any], Any]
) -> tuple[dict[str, Array], frozenset[str]]:
    """A value of each key, of one environment, and the keys that the first step lacks; see `probe`."""
    mode = getattr(env, "metadata", {}).get("autoreset_mode") if hasattr(env, "num_envs") else None
    rng, start, ends = np.random.default_rng(_PROBE_SEED), time.monotonic(), 0
    found: dict[str, Array] = {}
    rare: frozenset[str] = frozenset()
    seen: dict[str, None] = {}
    for number in range(1, _LONGEST + 1):
        obs, _, terminated, truncated, info = step_answer(env.step(sample_action(env, obs, info, rng)))
        info = masks(info)
        over = np.atleast_1d(np.logical_or(np.asarray(terminated, bool), np.asarray(truncated, bool)))
        shown = {key: np.asarray(as_info(info, key)[key]) for key in keys if key in as_info(info, key)}
        if hasattr(env, "num_envs"):
            shown = {key: _batch(value)[0] if value.ndim else value for key, value in shown.items()}
        if mode == AutoresetMode.SAME_STEP and over.any():
            shown |= _last_entries(info, over, keys)
        found = {**shown, **found}
        seen |= dict.fromkeys(info)
        missing = [key for key in keys if key not in found]
        if number == 1:
            rare = frozenset(missing)
        if not missing:
            break
        ends += bool(over.any())
        if ends >= _EPISODES:
            raise ConfigError(_missing(name, missing[0], f"{ends} episodes", seen))
        if time.monotonic() - start > _SECONDS:
            break
        if over.any() and mode in (None, AutoresetMode.DISABLED):
            options = None if mode is None else {"reset_mask": over}
            obs, info = reset_answer(env.reset(options=options))
            info = masks(info)
    for key in keys:
        if key not in found:
            _log.warning(
                "%s: the info of %d steps, without the end of %s, has no %r (env.info_keys): it is taken for a number, "
                "and for 0 where it is missing", name, number, f"{_EPISODES} episodes", key,
            )  # fmt: skip
            found[key] = np.zeros((), np.float32)
    return found, rare


def _last_entries(info: Any, over: Array, keys: Sequence[str]) -> dict[str, Array]:
    """The entries in the last info of an episode, of a vector environment that resets in the same step."""
    from minding.envs.backends.finals import final_infos

    rows = final_infos(info, over, InfoForm(False, dict.fromkeys(keys, spaces.Discrete(1))))
    return {key: np.asarray(row[key]) for row in rows for key in row}


def action_counts(space: spaces.Space[Any]) -> tuple[int, ...]:
    """The number of mask entries for each choice of an action; the numbers of a Tuple or Dict have none."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    if isinstance(space, spaces.MultiBinary):
        return (2,) * math.prod(space.shape)
    if isinstance(space, JoinedActions) and "nvec" in (joined := describe_actions(space, rescale=False)):
        return tuple(joined["nvec"])
    raise SpaceError(f"an action mask needs Discrete, MultiDiscrete or MultiBinary actions, got the space {space}")


def sample_action(env: Any, obs: Any, info: Mapping[str, Any], rng: np.random.Generator) -> Any:
    """A random action, or a batch of actions, legal by the mask in `info` or in the observation if either has
    one."""
    while isinstance(obs, Mapping) and ACTION_MASK not in obs and isinstance(obs.get(OBSERVATION), Mapping):
        obs = obs[OBSERVATION]
    shown = [each[ACTION_MASK] for each in (info, obs) if isinstance(each, Mapping) and ACTION_MASK in each]
    mask = shown[0] if shown else None
    if mask is None:
        space = env.action_space
        limits = without_placeholders(space) if isinstance(space, spaces.Box) else space
        if limits is space:
            return space.sample()
        return np.clip(rng.standard_normal(space.shape), limits.low, limits.high).astype(space.dtype)
    space = _action_space(env)
    if isinstance(space, spaces.MultiBinary):
        space = as_multi_discrete(space)
    drawn = random_legal(np.asarray(mask).astype(bool), action_counts(space), rng)
    if isinstance(space, JoinedActions):
        rows, start = env.action_space.sample(), describe_actions(space, rescale=False)["start"]
        rows[..., : len(start)] = drawn.reshape(*rows.shape[:-1], -1) + start
        return rows
    if isinstance(space, spaces.MultiDiscrete):
        drawn = drawn.reshape(*drawn.shape[:-1], *space.shape)
    return (drawn + space.start).astype(space.dtype)


def _action_space(env: Any) -> spaces.Space[Any]:
    """The action space of one environment; with several agents, of one agent."""
    if hasattr(env, "single_action_space"):
        return env.single_action_space
    agents = agents_space(getattr(env, "observation_space", None))
    return env.action_space if agents is None else agents.one_action


def _space_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> spaces.Space[Any]:
    if dtype.kind == "f":
        return spaces.Box(-np.inf, np.inf, shape, np.float32)
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, np.bool_)
    limits = np.iinfo(np.int64)
    return spaces.Box(limits.min, limits.max, shape, np.int64)


def _batch(values: Any) -> Any:
    """Values of all environments; Gymnasium has objects in place of some NumPy scalars, with None where it has none."""
    array = np.asarray(values)
    if array.dtype != object or array.ndim != 1:
        return values
    known = [value for value in array if value is not None]
    return np.array([np.zeros_like(known[0]) if value is None else value for value in array]) if known else values


def _entry(info: Mapping[str, Any], key: str) -> Any:
    if key not in as_info(info, key):
        raise ShapeError(f"info has no entry {key!r}, which env.info_keys declares")
    return info[key]


def _missing(name: str, key: str, where: str, info: Mapping[str, Any]) -> str:
    known = ", ".join(map(repr, info)) or "nothing"
    return f"env.info_keys: {name} gave no {key!r} in the info of {where}{nearest(key, info)}; it gave {known}"


RESULTS = ("battle_won", "is_success", "score")
"""Keys of shared info that are the results of an episode; they are passed on without being asked for."""


@dataclasses.dataclass(frozen=True)
class Team:
    """The agents of an environment."""

    names: tuple[str, ...]
    observations: tuple[spaces.Dict, ...]
    actions: tuple[spaces.Space[Any], ...]
    one_reward: bool = False
    shared_info: tuple[str, ...] = ()

    def info_keys(self, asked: Sequence[str]) -> tuple[str, ...]:
        """The keys of info that are passed on: those asked for, except masks, which are in observations, and
        `RESULTS`."""
        results = (key for key in self.shared_info if key in RESULTS)
        return tuple(dict.fromkeys([*(key for key in asked if key != ACTION_MASK), *results]))


class AgentsSpace(spaces.Dict):
    """Observations of all agents, ``(M, ...)`` each, with `ALIVE` and, if asked for, `STATE`."""

    def __init__(
        self, team: Team, observation: spaces.Dict, action: spaces.Space[Any], state: spaces.Space[Any] | None
    ) -> None:
        self.team, self.names = team, team.names
        self.one_observation, self.one_action = observation, action
        self.state = state
        entries = {key: batch_space(space, len(team.names)) for key, space in observation.spaces.items()}
        entries[ALIVE] = spaces.Box(0, 1, (len(team.names),), np.bool_)
        super().__init__(entries if state is None else {**entries, STATE: state})

    @property
    def reward_shape(self) -> tuple[int, ...]:
        """Shape of the reward of one step: ``()`` if all agents have one reward, else ``(M,)``."""
        return () if self.team.one_reward else (len(self.names),)


def agents_space(space: spaces.Space[Any] | None) -> AgentsSpace | None:
    """The space of several agents: `space` or, if declared info has joined it, its observation; None for one agent."""
    if isinstance(space, spaces.Dict) and not isinstance(space, AgentsSpace):
        space = space.spaces.get(OBSERVATION, space)
    return space if isinstance(space, AgentsSpace) else None
