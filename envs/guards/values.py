"""Checks that the return values of environments are numbers that fit their spaces, and that float32 can hold."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minding.engine.data.observation import without_legal
from minding.engine.data.ranges import LARGEST
from minding.engine.errors import EnvError
from minding.engine.types import Array
from minding.envs.guards.answers import brief
from minding.envs.spaces.layout import ObsLayout

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_EXACT = 2.0**24
"""From this number on, float32 cannot hold every integer."""
_SHOWN = 8
"""Numbers of an observation that a message shows whole; of more, it names the first that cannot be used."""


PLAIN = (float, np.float64, np.float32, int)
"""Usual types of rewards; values of other types are examined."""


def as_reward(reward: Any, name: str = "reward") -> float:
    """The reward of one step as a number; an array of one number counts as that number."""
    array = np.asarray(reward)
    if array.dtype.kind not in "biuf" or array.size != 1:
        several = "; an environment of several agents says how many in `n_agents`" if array.size > 1 else ""
        raise EnvError(f"{name} is {brief(reward)}; expected a number{several}")
    return float(array.item())


def step_reward(reward: Any, shape: tuple[int, ...]) -> float | Array:
    """The reward of one step: for shape ``()`` the number of `as_reward`, for ``(M,)`` an array, one number per
    agent."""
    if not shape:
        return as_reward(reward)
    array = np.asarray(reward)
    if array.dtype.kind not in "biuf" or array.shape != shape:
        raise EnvError(f"reward is {brief(reward)}; expected {shape[0]} numbers, one per agent")
    return array


def as_rewards(rewards: Any, shape: tuple[int, ...]) -> Array:
    """The rewards of a vector environment as float64 of `shape`: ``(N,)``, or ``(N, M)`` with one for each agent."""
    array = np.asarray(rewards)
    if array.dtype.kind not in "biuf" or array.shape != shape:
        each = "one per environment" if len(shape) == 1 else f"{shape[1]} for each environment, one per agent"
        raise EnvError(f"rewards are {brief(rewards)}; expected {np.prod(shape)} numbers, {each}")
    return array.astype(np.float64)


def _any_in_row(rows: Array) -> Array:
    """Whether any element of each row of ``(N, ...)`` is true, bool ``(N,)``."""
    return rows if rows.ndim == 1 else rows.reshape(len(rows), -1).any(axis=1)


def _unusable(values: Array) -> str:
    """Why an observation cannot be used, as a remark in a message; empty if the numbers speak for themselves."""
    if np.isinf(values).any():
        return " (float32 ends at 3.4e38)"
    return "" if np.isnan(values).any() else " (from 1.8e19 on float32 cannot hold the square of a number)"


class ValueCheck:
    """Checks the arrays of a layout: cheaply at every step, thoroughly if something may be wrong."""

    def __init__(self, layout: ObsLayout) -> None:
        leaves = layout.leaves
        self._leaves = leaves
        self._floats = [i for i, leaf in enumerate(leaves) if leaf.dtype.kind == "f"]
        self._counts = [(i, np.asarray(leaf.count)) for i, leaf in enumerate(leaves) if leaf.count is not None]
        self._masks = [(i, leaf.choices) for i, leaf in enumerate(leaves) if leaf.choices]
        wide = [i for i, leaf in enumerate(leaves) if leaf.dtype.kind in "iu" and leaf.dtype.itemsize >= 4]
        # Leaves of integers that a policy treats as numbers; rounding is reported once for each leaf.
        self._wide = [i for i in wide if leaves[i].count is None]
        self._unreported = set(self._floats)
        self._look_from = _EXACT**2 if self._floats else _FLOAT32_MAX

    def fits(self, arrays: Sequence[Array], reward: Array, over: Array | None = None) -> bool:
        """Whether all values fit; if not, `bad_rows` or `rounded` must check. For the arguments see `bad_rows`. The sum
        of squares is several times cheaper than `isfinite` on small arrays, and small only if all values are."""
        total = float(reward.dot(reward)) if reward.ndim == 1 else float((reward * reward).sum())
        for i in self._floats:
            flat = arrays[i].ravel("K")
            total += float(flat.dot(flat))
        if not total < self._look_from:
            return False
        if self._masks and any(rows.any() for _, rows in self._stuck(arrays, over)):
            return False
        return not (self._counts or self._wide) or self._integers_fit(arrays)

    def bad_rows(self, arrays: Sequence[Array], reward: Array, over: Array | None = None) -> list[tuple[int, str]]:
        """Rows with values that cannot be used in the leaves ``(N, ...)`` or the unchanged rewards, ``(N,)`` or ``(N,
        M)``, each with a description of the fault. `over`: bool ``(N,)``, rows with the last observation of a
        terminated episode, in which a mask may forbid every action."""
        found: dict[int, str] = {}
        for row in np.flatnonzero(_any_in_row(~(np.abs(reward) <= _FLOAT32_MAX))):
            beyond = ", which float32 cannot hold" if np.isfinite(reward[row]).all() else ""
            found[int(row)] = f"reward is {reward[row]}{beyond}"
        for i in self._floats:
            leaf, usable = self._leaves[i], (np.abs(arrays[i]) < LARGEST).reshape(len(arrays[i]), -1)
            for row in np.flatnonzero(~usable.all(1)):
                name, value = leaf.label, arrays[i][row]
                if value.size > _SHOWN:
                    place = int(usable[row].argmin())
                    name, value = leaf.entry(place), value.ravel()[place]
                found.setdefault(int(row), f"{name} is {np.array2string(value, precision=4)}{_unusable(value)}")
        for row, what in self.outside(arrays):
            found.setdefault(row, what)
        for row, what in self.stuck(arrays, over):
            found.setdefault(row, what)
        return sorted(found.items())

    def stuck(self, arrays: Sequence[Array], over: Array | None = None) -> list[tuple[int, str]]:
        """Rows with a mask that forbids every action, each with a description; see `bad_rows`."""
        return [
            (int(row), f"{self._leaves[i].label} allows no action ({brief(arrays[i][row])})")
            for i, rows in self._stuck(arrays, over)
            for row in np.flatnonzero(rows)
        ]

    def outside(self, arrays: Sequence[Array]) -> list[tuple[int, str]]:
        """Rows with integers that are outside their space, each with a description; see `bad_rows`."""
        found = []
        for i, count in self._counts:
            outside = ((arrays[i] < 0) | (arrays[i] >= count)).reshape(len(arrays[i]), -1).any(1)
            found += [(int(row), self._outside(i, arrays[i][row], count)) for row in np.flatnonzero(outside)]
        return found

    def rounded(self, arrays: Sequence[Array]) -> list[tuple[int, str]]:
        """One row for each leaf with numbers that float32 rounds, with a description; each leaf is reported once."""
        found = []
        for i in sorted({*self._unreported, *self._wide}):
            flat = np.abs(arrays[i].reshape(len(arrays[i]), -1).astype(np.float64))
            if not flat.size or not flat.max() >= _EXACT:
                continue
            row, column = np.unravel_index(int(flat.argmax()), flat.shape)
            gap = np.spacing(np.float32(flat[row, column]))
            what = (
                f"{self._leaves[i].label} holds {flat[row, column]:.12g}: policies compute in float32, whose numbers "
                f"are {gap:g} apart there, so smaller changes are lost; subtract an offset or scale it down"
            )
            found.append((int(row), what))
            self._unreported.discard(i)
            self._wide = [wide for wide in self._wide if wide != i]
        if not self._unreported:
            self._look_from = _FLOAT32_MAX / 2
        return found

    def _stuck(self, arrays: Sequence[Array], over: Array | None) -> Iterator[tuple[int, Array]]:
        """For each mask, the rows in which it forbids every action although an action has to follow."""
        for i, choices in self._masks:
            rows = _any_in_row(without_legal(arrays[i], choices))
            yield i, rows if over is None else rows & ~over

    def _integers_fit(self, arrays: Sequence[Array]) -> bool:
        for i, count in self._counts:
            # Read as unsigned, negative numbers are large.
            if (arrays[i].view(f"u{arrays[i].itemsize}") >= count).any():
                return False
        return all(not arrays[i].size or -_EXACT < arrays[i].min() <= arrays[i].max() < _EXACT for i in self._wide)

    def _outside(self, i: int, value: Array, count: Array) -> str:
        leaf = self._leaves[i]
        first = 0 if leaf.start is None else leaf.start
        given, last = (value + first).tolist(), (count - 1 + first).tolist()
        return f"{leaf.label} is {given}, its space has the values from {np.asarray(first).tolist()} to {last}"
