"""Checks that recorded steps lie in their spaces, by the same rules as steps of a running environment."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minding.engine.data.action_trees import COMPOSITE
from minding.engine.data.observation import ACTION_MASK, Leaf, first_entries, observation_leaves, without_legal
from minding.engine.types import Array

LARGEST = 2.0**64
"""Limit of the numbers in an observation: float32 cannot hold the squares of larger ones, and so no variance."""
_ROUNDING = 1e-6
"""Tolerance of actions outside of a Box, as a share of its width."""
_SEEN_ROUNDING = 1e-5
"""Tolerance of observations outside of a Box, absolute and relative to the limit."""
_ENDS = ("low", "high")
_BLOCK = 1 << 16
"""Number of rows that are checked at a time."""


def check_ranges(
    env: Mapping[str, Any],
    obs: Mapping[str, Array],
    final_obs: Mapping[str, Array],
    action: Array,
    end: Array,
    over: Array,
    *,
    single: bool = False,
    limits: bool = False,
) -> None:
    """Refuses recorded steps with a value outside its space; shapes and dtypes must have been checked before. `over`:
    bool ``(E,)``, whether each episode terminated, so that its last mask may allow nothing."""
    for rows in blocks(len(action)):
        for row, problem in _of_actions(env["env_action"], action[rows]):
            raise ValueError(f"the action of {_place(rows.start + row, end, single)} {problem}")
    for leaf in observation_leaves(env["observation"]):
        name = f"observation {leaf.path!r}" if leaf.path else "observation"
        for rows in blocks(len(action)):
            for row, problem in _of_leaf(leaf, obs[leaf.path][rows], limits):
                raise ValueError(f"the {name} of {_place(rows.start + row, end, single)} {problem}")
        for episode, problem in _of_leaf(leaf, final_obs[leaf.path], limits):
            place = "" if single else f" of episode {episode}"
            raise ValueError(f"the {name} after the last step{place} {problem}")
        if leaf.is_mask and leaf.path == ACTION_MASK:
            for rows in blocks(len(action)):
                masks = obs[leaf.path][rows]
                for row in _first(~_legal(env["env_action"], action[rows], masks, leaf.space["counts"])):
                    place, done = _place(rows.start + row, end, single), action[rows.start + row].tolist()
                    raise ValueError(f"the action of {place} is {done}, which its mask forbids")
            for episode in _first(without_legal(final_obs[leaf.path], leaf.space["counts"]) & ~over):
                place = "" if single else f" of episode {episode}"
                raise ValueError(
                    f"the {name} after the last step{place} allows no action, but the episode is not terminated"
                )


def blocks(count: int) -> Iterator[slice]:
    """Yields slices of bounded size that together cover `count` rows."""
    return (slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK))


def _place(row: int, end: Array, single: bool) -> str:
    if single:
        return f"step {row}"
    episode = int(np.searchsorted(end, row))
    begin = int(end[episode - 1]) + 1 if episode else 0
    return f"row {row}, step {row - begin} of episode {episode},"


def _of_actions(space: Mapping[str, Any], action: Array) -> Iterator[tuple[int, str]]:
    """The first row with an action that is not in the space, and the fault."""
    if space["kind"] in ("box", COMPOSITE):
        low, high = np.asarray(space["low"], np.float64), np.asarray(space["high"], np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        slack = np.where(bounded, _ROUNDING * (np.where(bounded, high, 0) - np.where(bounded, low, 0)), 0)
        whole = len(space["nvec"]) if space["kind"] == COMPOSITE else 0
        if whole:
            first, count = np.asarray(space["start"], np.float64), np.asarray(space["nvec"], np.float64)
            low, high = np.append(first, low), np.append(first + count - 1, high)
            slack = np.append(np.zeros(whole), slack)
        outside = ~((action >= low - slack) & (action <= high + slack) & (np.abs(action) < LARGEST))
        if whole:
            outside[:, :whole] |= action[:, :whole] != np.rint(action[:, :whole])
    else:
        low = np.asarray(space["start"])
        high = low + np.asarray(space["n"] if space["kind"] == "discrete" else space["nvec"]) - 1
        # The opposite comparisons would be false for a forged space with NaN.
        outside = ~((action >= low) & (action <= high))
    for row in _first(outside):
        yield row, _outside(action[row], low, high)


def _of_leaf(leaf: Leaf, values: Array, limits: bool) -> Iterator[tuple[int, str]]:
    """The first row with an observation that is not in the space, and the fault; limits of a Box count if asked for."""
    kind = leaf.space["kind"]
    if kind in ("discrete", "multi_discrete"):
        count = np.asarray(leaf.space["n"] if kind == "discrete" else leaf.space["nvec"])
        for row in _first(~((values >= 0) & (values < count))):
            yield row, _outside(values[row], np.asarray(0), count - 1)
    elif kind == "multi_binary":
        for row in _first((values != 0) & (values != 1)):
            yield row, f"is {_shown(values[row])}; expected 0 or 1"
    elif values.dtype.kind == "f":
        for row in _first(np.abs(values) >= LARGEST):
            yield row, f"is {_shown(values[row])}: from 1.8e19 on float32 cannot hold the square of a number"
        if limits and kind == "box":
            low, high = (np.broadcast_to(np.asarray(leaf.space[end], np.float64), leaf.field.shape) for end in _ENDS)
            slack = _SEEN_ROUNDING * np.maximum(1, np.minimum(np.abs(low), np.abs(high)))
            for row in _first((values < low - slack) | (values > high + slack)):
                yield row, _outside(values[row], low, high)


def _legal(space: Mapping[str, Any], action: Array, mask: Array, counts: list[int]) -> Array:
    """Bool ``(S,)``: whether the mask of each step allows its action; an action has one choice for each count."""
    if space["kind"] == COMPOSITE:
        action = action[:, : len(counts)]
    choices = (action.astype(np.int64) - np.asarray(space["start"], np.int64)).reshape(len(action), len(counts))
    return np.asarray(np.take_along_axis(mask, choices + first_entries(counts), axis=1))


def _first(rows: Array) -> list[int]:
    """The first row in which something is true, if there is one."""
    marked = rows.reshape(len(rows), -1).any(axis=1)
    return [int(marked.argmax())] if marked.any() else []


def _outside(value: Array, low: Array, high: Array) -> str:
    return f"is {_shown(value)}, its space has the values from {_shown(low)} to {_shown(high)}"


def _shown(value: Array) -> str:
    return np.array2string(np.asarray(value), threshold=8, precision=6, separator=", ")[:200]
