"""The layout of observations in memory: all checks and copies of an environment's observations are made here."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from minding.engine.data import obs_trees
from minding.engine.data.agent_axis import ALIVE, STATE
from minding.engine.data.observation import ACTION_MASK, OBSERVATION
from minding.engine.errors import ShapeError, SpaceError
from minding.engine.types import Array, Obs
from minding.envs.spaces.info import INFO, AgentsSpace, WithInfo, action_counts

_FLOAT32_SQUARED = 1e76
# An entry with such a name would hide the method in trees and configurations.
_METHODS = frozenset(name for name in dir(dict) if not name.startswith("_"))


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One array of an observation, or of the info that is passed on with it.

    Attributes:
      dtype: dtype that is returned (floats are float32).
      count: number of values of a Discrete, MultiDiscrete or MultiBinary leaf, of shape ``()`` or `shape`; else None.
    """

    path: str
    keys: tuple[str | int, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    source_dtype: np.dtype[Any]
    start: Any = None
    count: Any = None
    source_shape: tuple[int, ...] | None = None
    choices: tuple[int, ...] = ()
    part: str = OBSERVATION

    def coerce(self, obs: Any, lead: tuple[int, ...] = ()) -> Array:
        """Takes this leaf out of `obs`, with the leading axes `lead`, ``(N,)`` for a batch, and checks it."""
        array = np.asarray(self.pick(obs))
        expected = lead + (self.shape if self.source_shape is None else self.source_shape)
        if array.shape != expected:
            raise ShapeError(f"{self.label}: expected shape {expected}, got {array.shape}")
        if array.dtype != self.dtype:
            self._check_cast(array)
        if self.source_shape is not None:
            array = array.reshape(lead + self.shape)
        return array if self.start is None else array - self.start

    def entry(self, number: int) -> str:
        """The name of one number of this leaf, such as ``observation 'tank'[2]``."""
        place = ", ".join(map(str, np.unravel_index(number, self.shape))) if self.shape else ""
        return f"{self.label}[{place}]" if self.shape else self.label

    def pick(self, obs: Any) -> Any:
        """The part of `obs` that belongs to this leaf; ShapeError if it is missing."""
        value = obs
        for key in self.keys:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                raise ShapeError(f"{self.part} has no entry {key!r} (space: {self.label})") from None
        return value

    def _check_cast(self, array: Array) -> None:
        if self.choices:
            # PettingZoo and Gymnasium have masks of int8.
            if array.dtype.kind not in "iu" or ((array != 0) & (array != 1)).any():
                values = f" with values from {array.min()} to {array.max()}" if array.dtype.kind in "iu" else ""
                raise ShapeError(f"{self.label}: expected bool, or integers 0 and 1, got {array.dtype}{values}")
            return
        if not np.can_cast(array.dtype, self.dtype, "same_kind"):
            raise ShapeError(f"{self.label}: expected dtype {self.source_dtype}, got {array.dtype}")
        if self.dtype.kind in "iu" and array.size:
            limits, low, high = np.iinfo(self.dtype), int(array.min()), int(array.max())
            if low < limits.min or high > limits.max:
                raise ShapeError(
                    f"{self.label}: expected {self.source_dtype}, got {array.dtype} with values from {low} to {high}"
                )

    @property
    def label(self) -> str:
        return f"{self.part} {self.path!r}" if self.path else self.part


class ObsLayout:
    """The leaves of an observation space, in the sorted key order of `trees.leaves`, then those of declared info.

    Attributes:
      reward_shape: shape of the reward of one environment: ``()``, or ``(M,)`` for one reward per agent.
    """

    def __init__(self, space: spaces.Space[Any], action_space: spaces.Space[Any] | None = None) -> None:
        joined = isinstance(space, WithInfo)
        shown, keys = (space[OBSERVATION], (OBSERVATION,)) if joined else (space, ())
        self.reward_shape: tuple[int, ...] = ()
        self.agents: tuple[str, ...] | None = None
        if isinstance(shown, AgentsSpace):
            self.reward_shape, self.agents = shown.reward_shape, shown.names
            found = _agents_leaves(shown, keys)
        else:
            found = _masked_leaves(shown, action_space, keys)
        self._num_obs = len(found)
        info = _find_leaves(space[INFO], "", (INFO,)) if joined else []
        self.leaves: tuple[Leaf, ...] = (*found, *(dataclasses.replace(leaf, part=INFO) for leaf in info))
        first = self.leaves[0]
        self.plain = self._num_obs == 1 and not first.path
        self._fast_shape = first.shape if self.plain and first.start is None and not joined else None
        self._fast_dtypes = (first.dtype, first.source_dtype)

    def allocate(self, num_envs: int) -> list[Array]:
        """Uninitialized arrays ``(num_envs, *shape)``, one per leaf."""
        return [np.empty((num_envs, *leaf.shape), leaf.dtype) for leaf in self.leaves]

    def write(self, arrays: Sequence[Array], row: int, obs: Any) -> None:
        """Copies one observation into row `row` of `arrays`; ShapeError if it does not fit the space."""
        if type(obs) is np.ndarray and obs.shape == self._fast_shape and obs.dtype in self._fast_dtypes:
            if obs.dtype is self._fast_dtypes[0]:
                arrays[0][row] = obs
            else:
                _put(arrays[0], row, obs)
            return
        for leaf, array in zip(self.leaves, arrays):
            _put(array, row, leaf.coerce(obs))

    def split(self, obs: Any, num_envs: int) -> list[Array]:
        """Fresh C-ordered arrays, one per leaf, of the batched observation of a vector environment."""
        lead, fast = (num_envs,), self._fast_shape
        fits = fast is not None and type(obs) is np.ndarray and obs.shape == lead + fast
        if fits and obs.dtype is self._fast_dtypes[0]:
            return [obs.copy()]
        fresh = self.allocate(num_envs)
        for leaf, array in zip(self.leaves, fresh):
            _put(array, slice(None), leaf.coerce(obs, lead))
        return fresh

    def unflatten(self, arrays: Sequence[Array]) -> Obs:
        """The observation for policies: an array, or a FastTreeValue of the leaves."""
        if self.plain:
            return arrays[0]
        obs_leaves = self.leaves[: self._num_obs]
        return obs_trees.unflatten((leaf.path, array) for leaf, array in zip(obs_leaves, arrays))

    def info(self, arrays: Sequence[Array]) -> dict[str, Array] | None:
        """The declared info by name; None if there is none."""
        if self._num_obs == len(self.leaves):
            return None
        return {leaf.path: array for leaf, array in zip(self.leaves[self._num_obs :], arrays[self._num_obs :])}


def _put(array: Array, rows: int | slice, value: Array) -> None:
    """Writes into rows of an array, without NumPy's warning about numbers that become infinite. `values.ValueCheck`
    reports such numbers. The sum of squares is cheaper than silencing NumPy, and is small only if every number fits."""
    if value.dtype.itemsize > array.dtype.itemsize and array.dtype.kind == "f":
        flat = value if value.ndim == 1 else value.ravel("K")
        if not flat.dot(flat) < _FLOAT32_SQUARED:
            with np.errstate(over="ignore"):
                array[rows] = value
            return
    array[rows] = value


def _masked_leaves(
    space: spaces.Space[Any], action_space: spaces.Space[Any] | None, keys: tuple[str | int, ...]
) -> list[Leaf]:
    found = _find_leaves(space, "", keys)
    if action_space is None:
        return found
    return [_as_mask(leaf, action_space) if leaf.path == ACTION_MASK else leaf for leaf in found]


def _agents_leaves(space: AgentsSpace, keys: tuple[str | int, ...]) -> list[Leaf]:
    """The leaves of one agent's observation with the agents axis, and those that do not belong to a single agent."""
    count = len(space.names)
    found = [_with_axis(leaf, count) for leaf in _masked_leaves(space.one_observation, space.one_action, keys)]
    found.append(Leaf(ALIVE, (*keys, ALIVE), (count,), np.dtype(bool), np.dtype(bool)))
    if space.state is not None:
        found += _find_leaves(space.state, STATE, (*keys, STATE))
    return sorted(found, key=lambda leaf: leaf.path.split("."))


def _with_axis(leaf: Leaf, count: int) -> Leaf:
    source = None if leaf.source_shape is None else (count, *leaf.source_shape)
    return dataclasses.replace(leaf, shape=(count, *leaf.shape), source_shape=source)


def _find_leaves(space: Any, path: str, keys: tuple[str | int, ...]) -> list[Leaf]:
    children: Mapping[Any, Any]
    if isinstance(space, spaces.Dict):
        children = space.spaces
    elif isinstance(space, spaces.Tuple):
        children = dict(enumerate(space.spaces))
    else:
        return [_array_leaf(space, path, keys)]
    found: list[Leaf] = []
    # Sorted as strings, as in `trees.leaves`: with eleven items '10' comes before '2'.
    for key in sorted(children, key=str):
        text = isinstance(key, str) or isinstance(space, spaces.Tuple)
        if not text or "." in str(key) or key in _METHODS:
            raise SpaceError(
                f"observation key {key!r}: expected a string without dots that is not the name of a method of dict"
            )
        found += _find_leaves(children[key], f"{path}.{key}" if path else str(key), (*keys, key))
    if not found:
        raise SpaceError(f"observation space {space} has no entries")
    return found


def _as_mask(leaf: Leaf, action_space: spaces.Space[Any]) -> Leaf:
    choices = action_counts(action_space)
    if leaf.source_dtype.kind not in "biu" or leaf.shape != (sum(choices),):
        raise SpaceError(
            f"{leaf.label}: expected 0 or 1 for each of {sum(choices)} actions, a MultiBinary or Box of shape "
            f"({sum(choices)},), got shape {leaf.shape} of {leaf.source_dtype}"
        )
    return Leaf(leaf.path, leaf.keys, leaf.shape, np.dtype(bool), leaf.source_dtype, choices=choices)


def _array_leaf(space: Any, path: str, keys: tuple[str | int, ...]) -> Leaf:
    if isinstance(space, spaces.Discrete):
        return Leaf(path, keys, (), np.dtype(np.int64), np.dtype(np.int64), int(space.start) or None, int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        start, count = np.asarray(space.start).ravel(), space.nvec.ravel()
        return Leaf(
            path, keys, count.shape, np.dtype(np.int64), space.dtype, start if start.any() else None, count,
            source_shape=space.shape if len(space.shape) != 1 else None,
        )  # fmt: skip
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        floating = space.dtype.kind == "f"
        if not all(space.shape):
            raise SpaceError(f"observation space {space}{f' of {path!r}' if path else ''} has no numbers; leave it out")
        count = None if isinstance(space, spaces.Box) else np.array(2)
        dtype = np.dtype(np.float32) if floating else space.dtype
        return Leaf(path, keys, space.shape, dtype, space.dtype, count=count)
    raise SpaceError(
        f"observation space {space} is not supported; expected Box, Discrete, MultiDiscrete, MultiBinary, "
        "Dict or Tuple (gymnasium.wrappers.FlattenObservation or TransformObservation may help)"
    )
