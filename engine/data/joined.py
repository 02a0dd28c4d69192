"""Joins, cuts and saves rollouts of the same environments."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from minding.engine.data import trees
from minding.engine.data.rollout import Rollout
from minding.engine.types import Array, Obs, StateDict

_TREES = ("obs", "last_obs", "final_obs")
_BY_NAME = ("record", "info")


def join(first: Rollout, second: Rollout) -> Rollout:
    """Joins a rollout and the next one of the same environments into one.

    If an episode was abandoned between the two, for which there is no flag, `ends` and `final_obs` give the last
    observation of the first rollout as the true successor of its last row.

    Args:
      first, second: rollouts whose returns are still one-step (`bootstrap_row` is None).
    """
    ends, final_obs, final_value = _ends(first, second)
    return dataclasses.replace(
        second,
        obs=_tree_rows(first.obs, second.obs),
        final_obs=final_obs,
        ends=ends,
        action=np.concatenate([first.action, second.action]),
        reward=np.concatenate([first.reward, second.reward]),
        terminated=np.concatenate([first.terminated, second.terminated]),
        truncated=np.concatenate([first.truncated, second.truncated]),
        valid=_flags(first, second, "valid", True),
        record={name: np.concatenate([first.record[name], values]) for name, values in second.record.items()},
        final_value=final_value,
        info={name: np.concatenate([first.info[name], values]) for name, values in second.info.items()},
        fresh=_flags(first, second, "fresh", False),
        ready=_flags(first, second, "ready", True),
    )


def last_rows(rollout: Rollout, count: int) -> Rollout:
    """Copies of the last `count` rows of a rollout, or of all if it has fewer."""
    start = max(0, rollout.shape[0] - count)
    ended = rollout.ends[:, 0] >= start
    final_obs = trees.index(rollout.final_obs, ended) if ended.any() else None
    fresh = rollout.begun()[start:]
    # For all other rows, the rollouts say whether they begin an episode.
    fresh[1:] &= False if rollout.fresh is None else rollout.fresh[start + 1 :]
    return dataclasses.replace(
        rollout,
        obs=trees.tree_map(lambda x: x[start:].copy(), rollout.obs),
        last_obs=trees.copy(rollout.last_obs),
        final_obs=final_obs,
        ends=rollout.ends[ended] - np.array([start, 0]),
        action=rollout.action[start:].copy(),
        reward=rollout.reward[start:].copy(),
        terminated=rollout.terminated[start:].copy(),
        truncated=rollout.truncated[start:].copy(),
        valid=None if rollout.valid is None else rollout.valid[start:].copy(),
        record={name: values[start:].copy() for name, values in rollout.record.items()},
        final_value=None if rollout.final_value is None or final_obs is None else rollout.final_value[ended],
        info={name: values[start:].copy() for name, values in rollout.info.items()},
        fresh=fresh,
        ready=None if rollout.ready is None else rollout.ready[start:].copy(),
    )


def rollout_state(rollout: Rollout) -> StateDict:
    """A rollout as a part of a checkpoint."""
    state: StateDict = {}
    for field in dataclasses.fields(rollout):
        value = getattr(rollout, field.name)
        if value is not None:
            state[field.name] = dict(trees.leaves(value)) if field.name in _TREES else value
    return state


def rollout_of(state: StateDict) -> Rollout:
    """Inverse of `rollout_state`."""
    values: dict[str, Any] = {field.name: None for field in dataclasses.fields(Rollout)}
    values.update({name: {} for name in _BY_NAME})
    for name, value in state.items():
        values[name] = trees.unflatten(value) if name in _TREES else value
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
    lost_obs = trees.index(first.last_obs, given_up) if len(given_up) else None
    found = [obs for obs in (first.final_obs, lost_obs, second.final_obs) if obs is not None]
    final_obs = trees.index(_tree_rows(*found), order)
    if second.last_value is None or first.last_value is None:
        return ends[order], final_obs, None
    values = [first.final_value, first.last_value[given_up], second.final_value]
    return ends[order], final_obs, np.concatenate([value for value in values if value is not None])[order]


def _tree_rows(*parts: Obs) -> Obs:
    joined: Obs = trees.tree_map(lambda *arrays: np.concatenate(arrays), *parts)
    return joined


def _flags(first: Rollout, second: Rollout, name: str, unsaid: bool) -> Array | None:
    """Flags ``(T, N)`` of both; `unsaid` in the rows of a rollout without them."""
    given = [(getattr(part, name), part.shape) for part in (first, second)]
    if all(part is None for part, _ in given):
        return None
    flags: Array = np.concatenate([np.full(shape, unsaid) if part is None else part for part, shape in given])
    return flags
