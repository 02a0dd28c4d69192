"""Joins rollouts: one after the other in time, side by side for the shards of an iteration, and into whole episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.data import obs_trees
from minding.engine.data.rollout import Rollout
from minding.engine.errors import ShapeError
from minding.engine.types import Array, EpisodeEnd, Obs, StateDict

_STEPS = ("action", "reward", "terminated", "truncated")
_FLAGS = {"valid": True, "fresh": False, "ready": True}
"""Optional fields ``(T, N)``, with the value for the rows of a rollout without them."""
_BY_NAME = ("record", "info")
_TREES = ("obs", "last_obs", "final_obs")
_FEW = 16


def _concatenated(rollouts: Sequence[Rollout], axis: int) -> dict[str, Any]:
    """The fields whose first axes are T and N, concatenated along one of the two."""

    def along(*arrays: Array) -> Array:
        return np.concatenate(arrays, axis)

    found: dict[str, Any] = {"obs": obs_trees.tree_map(along, *[rollout.obs for rollout in rollouts])}
    found |= {name: along(*[getattr(rollout, name) for rollout in rollouts]) for name in _STEPS}
    for name in _BY_NAME:
        found[name] = _by_name([getattr(rollout, name) for rollout in rollouts], axis, f"the {name}")
    for name, unsaid in _FLAGS.items():
        given = [(getattr(rollout, name), rollout.shape) for rollout in rollouts]
        if all(flags is None for flags, _ in given):
            found[name] = None
        else:
            found[name] = along(*[np.full(shape, unsaid) if flags is None else flags for flags, shape in given])
    return found


def _by_name(parts: Sequence[Mapping[str, Array]], axis: int, what: str) -> dict[str, Array]:
    for k, part in enumerate(parts):
        if part.keys() != parts[0].keys():
            other = sorted(part.keys() ^ parts[0].keys())
            raise ShapeError(f"{what} of shard {k} has other fields than shard 0: {', '.join(other)}")
    return {name: np.concatenate([part[name] for part in parts], axis=axis) for name in parts[0]}


# In time


def join(first: Rollout, second: Rollout) -> Rollout:
    """Joins a rollout and the next one of the same environments into one. If an episode was abandoned between the two,
    for which there is no flag, `ends` and `final_obs` give the last observation of the first rollout as the true
    successor of its last row."""
    ends, final_obs, final_value = _ends(first, second)
    record = {name: first.record[name] for name in second.record}
    info = {name: first.info[name] for name in second.info}
    columns = _concatenated([dataclasses.replace(first, record=record, info=info), second], 0)
    return dataclasses.replace(second, **columns, ends=ends, final_obs=final_obs, final_value=final_value)


def last_rows(rollout: Rollout, count: int) -> Rollout:
    """Copies of the last `count` rows of a rollout, or of all if it has fewer."""
    start = max(0, rollout.shape[0] - count)
    ended = rollout.ends[:, 0] >= start
    fresh = rollout.begun()[start:]
    # For all other rows, the rollouts say whether they begin an episode.
    fresh[1:] &= False if rollout.fresh is None else rollout.fresh[start + 1 :]
    columns: dict[str, Any] = {name: getattr(rollout, name)[start:].copy() for name in _STEPS}
    columns |= {name: {k: x[start:].copy() for k, x in getattr(rollout, name).items()} for name in _BY_NAME}
    for name in ("valid", "ready"):
        flags = getattr(rollout, name)
        columns[name] = None if flags is None else flags[start:].copy()
    return dataclasses.replace(
        rollout,
        **columns,
        obs=obs_trees.tree_map(lambda x: x[start:].copy(), rollout.obs),
        last_obs=obs_trees.copy(rollout.last_obs),
        final_obs=obs_trees.index(rollout.final_obs, ended) if ended.any() else None,
        ends=rollout.ends[ended] - np.array([start, 0]),
        final_value=rollout.final_value[ended] if rollout.final_value is not None and ended.any() else None,
        fresh=fresh,
    )


def rollout_state(rollout: Rollout) -> StateDict:
    """A rollout as a part of a checkpoint."""
    state: StateDict = {}
    for field in dataclasses.fields(rollout):
        value = getattr(rollout, field.name)
        if value is not None:
            state[field.name] = dict(obs_trees.leaves(value)) if field.name in _TREES else value
    return state


def rollout_of(state: StateDict) -> Rollout:
    """Inverse of `rollout_state`."""
    values: dict[str, Any] = {field.name: None for field in dataclasses.fields(Rollout)}
    values.update({name: {} for name in _BY_NAME})
    for name, value in state.items():
        values[name] = obs_trees.unflatten(value) if name in _TREES else value
    return Rollout(**values)


def _ends(first: Rollout, second: Rollout) -> tuple[Array, Obs | None, Array | None]:
    """Ends, final observations and their values of two rollouts as one."""
    steps = first.shape[0]
    given_up = np.zeros(0, np.int64)
    if second.fresh is not None:
        # The row before an invalid row is no transition, either.
        going = ~first.cut()[-1] if first.valid is None else ~first.cut()[-1] & first.valid[-1]
        given_up = np.flatnonzero(second.fresh[0] & going)
    lost = np.stack([np.full(len(given_up), steps - 1), given_up], axis=1)
    ends = np.concatenate([first.ends, lost, second.ends + np.array([steps, 0])])
    if not len(ends):
        return ends, None, None
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    lost_obs = obs_trees.index(first.last_obs, given_up) if len(given_up) else None
    found = [obs for obs in (first.final_obs, lost_obs, second.final_obs) if obs is not None]
    final_obs = obs_trees.index(_tree_rows(found), order)
    if second.last_value is None or first.last_value is None:
        return ends[order], final_obs, None
    values = [first.final_value, first.last_value[given_up], second.final_value]
    return ends[order], final_obs, np.concatenate([value for value in values if value is not None])[order]


# Side by side


class CannotJoin(Exception):
    """The values of a field differ among shards, and there is no rule to join them."""


def join_shards(name: str, values: Sequence[Any], envs: int) -> Any:
    """Joins the values that a field of the context has in all shards into one."""
    if all(isinstance(value, Rollout) for value in values):
        return side_by_side(values, envs)
    joint = _JOINTS.get(name)
    if joint is not None:
        return joint(values, envs)
    if not all(_alike(values[0], value) for value in values[1:]):
        raise CannotJoin
    return values[0]


def side_by_side(rollouts: Sequence[Rollout], envs: int) -> Rollout:
    """Joins rollouts of the same steps in different environments along N."""
    shapes = [rollout.shape for rollout in rollouts]
    for k, (steps, count) in enumerate(shapes):
        if count != envs:
            raise ShapeError(
                f"shard {k} collected in {count} environments, expected {envs}: a factory of environments must make "
                "lane.share(num_envs) of them"
            )
        if steps != shapes[0][0]:
            raise ShapeError(
                f"shard {k} collected {steps} steps, but shard 0 collected {shapes[0][0]}: expected the same number"
            )
    ends = np.concatenate([rollout.ends + np.array([0, k * envs]) for k, rollout in enumerate(rollouts)])
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    final_obs, final_value = _given(rollouts, "final_obs"), _given(rollouts, "final_value")
    return dataclasses.replace(
        rollouts[0],
        **_concatenated(rollouts, 1),
        last_obs=_tree_rows([rollout.last_obs for rollout in rollouts]),
        final_obs=obs_trees.index(_tree_rows(final_obs), order) if final_obs else None,
        ends=ends[order],
        bootstrap_row=_optional(rollouts, "bootstrap_row", 1),
        last_value=_optional(rollouts, "last_value", 0),
        final_value=np.concatenate(final_value)[order] if final_value else None,
    )


def _tree_rows(parts: Sequence[Obs]) -> Obs:
    rows: Obs = obs_trees.tree_map(lambda *arrays: np.concatenate(arrays), *parts)
    return rows


def _given(rollouts: Sequence[Rollout], name: str) -> list[Any]:
    return [value for value in (getattr(rollout, name) for rollout in rollouts) if value is not None]


def _optional(rollouts: Sequence[Rollout], name: str, axis: int) -> Array | None:
    given = _given(rollouts, name)
    if given and len(given) < len(rollouts):
        raise ShapeError(f"expected {name} in the rollouts of all shards or of none, but only some have it")
    return np.concatenate(given, axis=axis) if given else None


def _rows(parts: Sequence[Any], envs: int) -> dict[str, Array]:
    """Joins rows of train_data; the sequences of each shard get different numbers."""
    if not all(_is_rows(part) for part in parts):
        raise CannotJoin
    joined = _by_name(parts, 0, "ctx.train_data")
    if "sequence" in joined and len(joined["sequence"]):
        # One row per environment, or per agent of an environment.
        count = -(-(int(joined["sequence"].max()) + 1) // envs) * envs
        joined["sequence"] = np.concatenate([part["sequence"] + k * count for k, part in enumerate(parts)])
    return joined


def _is_rows(part: Any) -> bool:
    return isinstance(part, dict) and all(isinstance(value, np.ndarray) and value.ndim for value in part.values())


def _lists(parts: Sequence[Any], envs: int) -> list[Any]:
    if not all(isinstance(part, list) for part in parts):
        raise CannotJoin
    return [entry for part in parts for entry in part]


def _stats(parts: Sequence[Any], envs: int) -> list[EpisodeEnd]:
    if not all(isinstance(end, EpisodeEnd) for end in _lists(parts, envs)):
        raise CannotJoin
    return [dataclasses.replace(end, env_id=k * envs + end.env_id) for k, part in enumerate(parts) for end in part]


def _end_indices(parts: Sequence[Any], envs: int) -> Array:
    """Indices ``t * N + n`` of the last rows of trajectories, see `Rollout.end_idx`."""
    if not all(isinstance(part, np.ndarray) for part in parts):
        raise CannotJoin
    width = len(parts) * envs
    moved = [part // envs * width + k * envs + part % envs for k, part in enumerate(parts)]
    return np.sort(np.concatenate(moved))


_JOINTS: dict[str, Callable[[Sequence[Any], int], Any]] = {
    "train_data": _rows,
    "episodes": _lists,
    "episode_stats": _stats,
    "trajectory_end_idx": _end_indices,
}
JOINED = ("trajectories", *_JOINTS)
"""The fields of the context that can be joined; others have to be equal in all shards, or be counters."""


def _alike(one: Any, other: Any) -> bool:
    """Whether two values are equal, also within dicts, lists and arrays."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_alike(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    try:
        return bool(one == other)
    except Exception:  # A user's __eq__ may raise anything.
        return False


# Into episodes


class OpenEpisodes:
    """Gathers rollouts of any length into complete episodes.

    An episode is complete when it ends, or when the next row does not continue it: after a fault, or where a resumed
    run starts new episodes. The episodes of different collectors are kept apart.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rows: dict[int, _Rows] = {}

    def add(self, rollout: Rollout, columns: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Adds the rows of a rollout that are ready, with arrays ``(T, N, ...)`` by name, the same names in every
        rollout; yields the columns ``(L, ...)`` by name of each episode that they complete, as copies, in the order of
        completion."""
        steps, envs = rollout.shape
        held = self._rows.setdefault(rollout.collector, _Rows(envs))
        ready, begun, over = rollout.transitions(), rollout.begun(), rollout.terminated | rollout.truncated
        valid = np.ones(rollout.shape, np.bool_) if rollout.valid is None else rollout.valid
        for t in range(steps):
            yield from held.take(np.flatnonzero(begun[t] | ~valid[t]))
            held.append(np.flatnonzero(ready[t]), {name: values[t] for name, values in columns.items()})
            yield from held.take(np.flatnonzero(over[t] | (held.count >= self._longest)))

    def rest(self) -> Iterator[dict[str, Array]]:
        """Yields the rows so far of the running episodes, and keeps them."""
        for rows in self._rows.values():
            yield from _Rows.of(rows.state_dict()).take(np.arange(len(rows.count)))

    def state_dict(self) -> StateDict:
        return {str(number): rows.state_dict() for number, rows in self._rows.items()}

    def load_state_dict(self, state: StateDict) -> None:
        self._rows = {int(number): _Rows.of(rows) for number, rows in state.items()}


class _Rows:
    """The rows of N running episodes, in arrays ``(N, capacity, ...)`` that grow with the longest.

    Attributes:
      count: int64 ``(N,)``, the number of rows of each.
    """

    def __init__(self, envs: int) -> None:
        self.count = np.zeros(envs, np.int64)
        self._columns: dict[str, Array] = {}

    def append(self, envs: Array, columns: Mapping[str, Array]) -> None:
        """Appends a row to the episodes of some environments, from columns ``(N, ...)`` of all."""
        if not len(envs):
            return
        needed = int(self.count[envs].max()) + 1
        for name, values in columns.items():
            held = self._columns.get(name)
            if held is None or held.shape[1] < needed:
                self._columns[name] = held = _grown(held, values, max(_FEW, 2 * (needed - 1)))
            held[envs, self.count[envs]] = values[envs]
        self.count[envs] += 1

    def take(self, envs: Array) -> Iterator[dict[str, Array]]:
        """Takes out the episodes of some environments that have any rows."""
        for n in envs[self.count[envs] > 0].tolist():
            rows = {name: values[n, : self.count[n]].copy() for name, values in self._columns.items()}
            self.count[n] = 0
            yield rows

    def state_dict(self) -> StateDict:
        held = np.arange(max(self.count, default=0)) < self.count[:, None]
        columns = {name: values[:, : held.shape[1]][held] for name, values in self._columns.items()}
        return {"count": self.count.copy(), "columns": columns if held.any() else {}}

    @classmethod
    def of(cls, state: StateDict) -> _Rows:
        """Inverse of `state_dict`."""
        rows = cls(len(state["count"]))
        rows.count[:] = state["count"]
        most = int(rows.count.max())
        held = np.arange(max(_FEW, most)) < rows.count[:, None]
        for name, values in state["columns"].items():
            rows._columns[name] = np.zeros((*held.shape, *values.shape[1:]), values.dtype)
            rows._columns[name][held] = values
        return rows


def _grown(held: Array | None, values: Array, capacity: int) -> Array:
    """An array ``(N, capacity, ...)`` that begins with the values of `held`."""
    grown = np.zeros((len(values), capacity, *values.shape[1:]), values.dtype)
    if held is not None:
        grown[:, : held.shape[1]] = held
    return grown
