"""Joins the rollouts of the shards of an iteration: environments side by side, in shard order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.data import trees
from minding.engine.data.rollout import Rollout
from minding.engine.errors import ShapeError
from minding.engine.types import Array, EpisodeEnd


class CannotJoin(Exception):
    """The values of a field differ among shards, and there is no rule to join them."""


def join_shards(name: str, values: Sequence[Any], envs: int) -> Any:
    """Joins the values that a field of the context has in all shards into one.

    Args:
      name: name of the field.
      values: value of each shard, in order.
      envs: environments of a shard; environment n of shard k becomes number ``k * envs + n``.

    Raises:
      CannotJoin: the values differ, and there is no rule to join this field.
      ShapeError: the shards differ in their number of environments or steps.
    """
    if all(isinstance(value, Rollout) for value in values):
        return side_by_side(values, envs)
    joint = _JOINTS.get(name)
    if joint is not None:
        return joint(values, envs)
    if not all(_alike(values[0], value) for value in values[1:]):
        raise CannotJoin
    return values[0]


def side_by_side(rollouts: Sequence[Rollout], envs: int) -> Rollout:
    """Joins rollouts of the same steps in different environments along N.

    Args:
      rollouts: rollouts of T steps and `envs` environments each.
      envs: see `join_shards`.

    Raises:
      ShapeError: a rollout has another number of steps or environments, or other fields than the first.
    """
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
    first = rollouts[0]
    moved = [rollout.ends + np.array([0, k * envs]) for k, rollout in enumerate(rollouts)]
    ends = np.concatenate(moved)
    order = np.lexsort((ends[:, 1], ends[:, 0]))
    final_obs, final_value = _given(rollouts, "final_obs"), _given(rollouts, "final_value")
    return dataclasses.replace(
        first,
        obs=trees.tree_map(_along(1), *[rollout.obs for rollout in rollouts]),
        last_obs=trees.tree_map(_along(0), *[rollout.last_obs for rollout in rollouts]),
        final_obs=trees.index(trees.tree_map(_along(0), *final_obs), order) if final_obs else None,
        ends=ends[order],
        action=np.concatenate([rollout.action for rollout in rollouts], axis=1),
        reward=np.concatenate([rollout.reward for rollout in rollouts], axis=1),
        terminated=np.concatenate([rollout.terminated for rollout in rollouts], axis=1),
        truncated=np.concatenate([rollout.truncated for rollout in rollouts], axis=1),
        valid=_flags(rollouts, "valid", True),
        bootstrap_row=_optional(rollouts, "bootstrap_row", 1),
        record=_by_name([rollout.record for rollout in rollouts], 1, "the record"),
        last_value=_optional(rollouts, "last_value", 0),
        final_value=np.concatenate(final_value)[order] if final_value else None,
        info=_by_name([rollout.info for rollout in rollouts], 1, "info"),
        fresh=_flags(rollouts, "fresh", False),
        ready=_flags(rollouts, "ready", True),
    )


def _along(axis: int) -> Callable[..., Array]:
    return lambda *arrays: np.concatenate(arrays, axis=axis)


def _given(rollouts: Sequence[Rollout], name: str) -> list[Any]:
    return [value for value in (getattr(rollout, name) for rollout in rollouts) if value is not None]


def _optional(rollouts: Sequence[Rollout], name: str, axis: int) -> Array | None:
    given = _given(rollouts, name)
    if given and len(given) < len(rollouts):
        raise ShapeError(f"expected {name} in the rollouts of all shards or of none, but only some have it")
    return np.concatenate(given, axis=axis) if given else None


def _flags(rollouts: Sequence[Rollout], name: str, unsaid: bool) -> Array | None:
    """Flags ``(T, N)`` of all rollouts; `unsaid` for rollouts without them."""
    if not _given(rollouts, name):
        return None
    flags = [(getattr(rollout, name), rollout.shape) for rollout in rollouts]
    joined: Array
    joined = np.concatenate([np.full(shape, unsaid) if part is None else part for part, shape in flags], axis=1)
    return joined


def _by_name(parts: Sequence[Mapping[str, Array]], axis: int, what: str) -> dict[str, Array]:
    for k, part in enumerate(parts):
        if part.keys() != parts[0].keys():
            other = sorted(part.keys() ^ parts[0].keys())
            raise ShapeError(f"{what} of shard {k} has other fields than shard 0: {', '.join(other)}")
    return {name: np.concatenate([part[name] for part in parts], axis=axis) for name in parts[0]}


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
