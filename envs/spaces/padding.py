"""Common spaces for agents with different spaces: smaller spaces are padded to the size of the largest."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data.agent_axis import own_entries
from minding.engine.errors import EnvError, SpaceError
from minding.engine.types import Array
from minding.envs.spaces.actions import JoinedActions
from minding.envs.spaces.info import action_counts


def common_observation(own: Mapping[str, spaces.Space[Any]], name: str) -> spaces.Space[Any]:
    """The space that holds the observations of all agents. Boxes of one dtype and number of axes are padded with zeros
    at the end of each axis, Discrete and MultiBinary spaces with values that never occur, and Dicts entry by entry."""
    return _common(own, f"{name}: the agents observe", _fillings)


def common_action(own: Mapping[str, spaces.Space[Any]], name: str) -> spaces.Space[Any]:
    """The space that holds the actions of all agents; `OwnAction` converts them to those of a single agent. Discrete
    and MultiDiscrete spaces get the highest number of values among the agents. A Box gets the largest size and, if
    bounds differ, the widest bounds."""
    return _common(own, f"{name}: the agents act in", _action_fillings)


def legal_entries(own: spaces.Space[Any], common: spaces.Space[Any]) -> Array:
    """Which entries of a mask over the actions in `common` are actions in the space `own`, bool ``(A,)``."""
    legal = np.zeros(sum(action_counts(common)), bool)
    legal[own_entries(action_counts(own), action_counts(common))] = True
    return legal


def fill_up(array: Array, shape: tuple[int, ...]) -> Array:
    """`array`, padded to `shape` with zeros at the end of each axis."""
    if array.shape == shape:
        return array
    filled = np.zeros(shape, array.dtype)
    filled[tuple(slice(size) for size in array.shape)] = array
    return filled


class OwnAction:
    """Converts an action in the common space of all agents into an action of a single agent."""

    def __init__(self, agent: str, own: Any, common: Any) -> None:
        self._agent, self._own = agent, own
        self._discrete = isinstance(own, spaces.Discrete)
        self._part: tuple[slice, ...] | None = None
        self._shift: Any = None
        self._scale: Array | None = None
        self._codec = own.codec if isinstance(own, JoinedActions) else None
        if own == common:
            return
        self._part = tuple(slice(size) for size in own.shape)
        if isinstance(own, spaces.Box):
            low, high = common.low[self._part], common.high[self._part]
            if not (np.array_equal(low, own.low) and np.array_equal(high, own.high)):
                self._scale = (own.high - own.low) / np.where(high > low, high - low, 1)
                self._low = low
        else:
            self._shift = own.start - np.asarray(common.start)[self._part]

    def __call__(self, action: Any) -> Any:
        if self._codec is not None:
            return self._codec.split(np.asarray(action))
        if self._part is None:
            return int(action) if self._discrete else action
        action = np.asarray(action)[self._part]
        if self._scale is not None:
            mapped = self._own.low + (action - self._low) * self._scale
            return np.clip(mapped, self._own.low, self._own.high).astype(self._own.dtype)
        if self._shift is None:
            return action
        action = (action + self._shift).astype(self._own.dtype)
        if not self._own.contains(action):
            raise EnvError(f"action {action} of {self._agent!r} is not in its space {self._own}: obey its action mask")
        return int(action) if self._discrete else action


_Fill = Callable[[list[Any]], "spaces.Space[Any] | None"]


def _common(own: Mapping[str, spaces.Space[Any]], what: str, fill: Mapping[type, _Fill]) -> spaces.Space[Any]:
    agents = list(own)
    first = own[agents[0]]
    if all(space == first for space in own.values()):
        return first
    for kind, filled in fill.items():
        if all(isinstance(space, kind) for space in own.values()):
            found = filled(list(own.values()))
            if found is not None:
                return found
    if all(isinstance(space, spaces.Dict) for space in own.values()) and fill is _fillings:
        entries = [list(space.spaces) for space in own.values()]  # type: ignore[attr-defined]
        if all(keys == entries[0] for keys in entries):
            return spaces.Dict({key: _common(_entry(own, key), f"{what} {key!r} in", fill) for key in entries[0]})
    other = next(agent for agent in agents if own[agent] != first)
    raise SpaceError(
        f"{what} spaces that cannot be combined, {agents[0]!r} {first}, {other!r} {own[other]}: expected spaces of one "
        "kind, whose sizes may differ; bring them together with a wrapper"
    )


def _entry(own: Mapping[str, Any], key: str) -> dict[str, spaces.Space[Any]]:
    return {agent: space[key] for agent, space in own.items()}


def _box(own: list[Any]) -> spaces.Box | None:
    if len({(len(space.shape), space.dtype) for space in own}) > 1:
        return None
    shape = tuple(int(size) for size in np.max([space.shape for space in own], axis=0))
    low = np.min([fill_up(space.low, shape) for space in own], axis=0)
    high = np.max([fill_up(space.high, shape) for space in own], axis=0)
    return spaces.Box(low, high, dtype=own[0].dtype.type)


def _discrete(own: list[Any]) -> spaces.Discrete | None:
    starts = {int(space.start) for space in own}
    return spaces.Discrete(max(int(space.n) for space in own), start=starts.pop()) if len(starts) == 1 else None


def _multi_binary(own: list[Any]) -> spaces.MultiBinary | None:
    if len({len(space.shape) for space in own}) > 1:
        return None
    return spaces.MultiBinary([int(size) for size in np.max([space.shape for space in own], axis=0)])


def _discrete_action(own: list[Any]) -> spaces.Discrete:
    # If the agents' actions begin with different numbers, the common actions count from 0.
    return _discrete(own) or spaces.Discrete(max(int(space.n) for space in own))


def _multi_discrete_action(own: list[Any]) -> spaces.MultiDiscrete | None:
    if len({space.shape for space in own}) > 1:
        return None
    return spaces.MultiDiscrete(np.max([space.nvec for space in own], axis=0))


def _box_action(own: list[Any]) -> spaces.Box | None:
    """The common Box; the bounds of each number are the widest among the agents that have it. None without one."""
    if len({(len(space.shape), space.dtype) for space in own}) > 1:
        return None
    shape = tuple(int(size) for size in np.max([space.shape for space in own], axis=0))
    low, high = np.full(shape, np.inf, own[0].dtype), np.full(shape, -np.inf, own[0].dtype)
    for space in own:
        part = tuple(slice(size) for size in space.shape)
        low[part], high[part] = np.minimum(low[part], space.low), np.maximum(high[part], space.high)
    for space in own:
        part = tuple(slice(size) for size in space.shape)
        same = np.array_equal(low[part], space.low) and np.array_equal(high[part], space.high)
        if not same and not (np.isfinite(low[part]).all() and np.isfinite(high[part]).all()):
            return None
    empty = low > high
    return spaces.Box(np.where(empty, 0, low), np.where(empty, 0, high), dtype=own[0].dtype.type)


_fillings: dict[type, _Fill] = {spaces.Box: _box, spaces.Discrete: _discrete, spaces.MultiBinary: _multi_binary}
_action_fillings: dict[type, _Fill] = {
    spaces.Discrete: _discrete_action,
    spaces.MultiDiscrete: _multi_discrete_action,
    spaces.Box: _box_action,
}
