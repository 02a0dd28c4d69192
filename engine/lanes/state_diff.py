"""Large states of workers, sent over a network as their changes since the last state.

Every answer contains the state of running episodes. Environments are restored by replaying their actions, so the state
grows with the episodes, and most of it equals the state in the answer before.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from minding.engine.types import Array, StateDict

LARGE = 1 << 16
"""Size of arrays, in bytes, from which only increments are sent.

They take 0.5 ms on a network of 1 Gbit/s, a tenth of an iteration with one gradient step. Above 100 KB Ray moves an
answer through its object store, which takes another 0.8 ms.
"""
_LONG = 100
"""Entries of a list above which comparing them takes longer than sending them."""
_SAME, _MISSING = object(), object()
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_PLAIN_KINDS = "biufcmMSU"


@dataclasses.dataclass(frozen=True)
class Rows:
    """The new rows of an array that begins with the rows of the earlier one."""

    rows: Array


@dataclasses.dataclass(frozen=True)
class Changes:
    """The differences between two versions of a dict or a list."""

    keys: tuple[Any, ...] | None
    entries: dict[Any, Any]


def difference(before: StateDict, now: StateDict) -> Changes:
    """The changes with which `applied` turns `before` into `now`; they refer to the arrays of `now`. Values are equal
    if their types and bits are: an array with NaN equals itself, 0.0 does not equal -0.0. A value counts as new unless
    it is a dict with strings as keys, a short list, an array of numbers or strings in C order, or a JSON value."""
    change = _change(before, now)
    if change is _SAME:
        return Changes(None, {})
    return change if isinstance(change, Changes) else Changes(tuple(now), dict(now))


def applied(before: StateDict, changes: Changes) -> StateDict:
    """The later state. It shares the equal parts with `before`, which is not changed."""
    state: StateDict = _applied(before, changes)
    return state


class Increments:
    """Decides for each of successive states, which all arrive in order, what to send."""

    def __init__(self) -> None:
        # A copy of the last state if it was large: a state may refer to arrays that are changed later.
        self._sent: StateDict | None = None

    def next(self, state: StateDict) -> StateDict | Changes:
        """The state, or its changes since the last one if both are large."""
        before, self._sent = self._sent, None
        if sum(array.nbytes for array in _arrays(state)) <= LARGE:
            return state
        self._sent = _copied(state)
        return state if before is None else difference(before, state)


def _change(before: Any, now: Any) -> Any:
    """`_SAME`, `Changes`, `Rows`, or `now`."""
    if type(before) is not type(now):
        return now
    if type(now) is np.ndarray:
        return _change_of_array(before, now)
    if type(now) is dict:
        if not all(type(key) is str for tree in (before, now) for key in tree):
            return now
        keys = tuple(now)
        changes = {key: _change(before.get(key, _MISSING), value) for key, value in now.items()}
        return _changes(None if keys == tuple(before) else keys, changes)
    if type(now) is list:
        if not len(before) <= len(now) <= _LONG:
            return now
        changes = {k: _change(before[k] if k < len(before) else _MISSING, value) for k, value in enumerate(now)}
        return _changes(None if len(now) == len(before) else tuple(changes), changes)
    if type(now) is float:
        # Two NaN may have different bits.
        return _SAME if now == before and now.hex() == before.hex() else now
    return _SAME if type(now) in (int, str, bool, type(None)) and before == now else now


def _changes(keys: tuple[Any, ...] | None, changes: dict[Any, Any]) -> Any:
    entries = {key: change for key, change in changes.items() if change is not _SAME}
    return Changes(keys, entries) if entries or keys is not None else _SAME


def _change_of_array(before: Array, now: Array) -> Any:
    comparable = before.dtype == now.dtype and now.dtype.kind in _PLAIN_KINDS
    if not (comparable and before.flags.c_contiguous and now.flags.c_contiguous):
        return now
    if before.shape == now.shape:
        return _SAME if same_bits(before, now) else now
    continues = before.ndim == now.ndim > 0 and before.shape[1:] == now.shape[1:] and len(before) < len(now)
    return Rows(now[len(before) :]) if continues and same_bits(before, now[: len(before)]) else now


def same_bits(one: Array, other: Array) -> bool:
    """Whether two arrays of one dtype and shape, both in C order, are equal bit by bit."""
    word = _WORDS.get(one.dtype.itemsize)
    if word is None:
        return one.tobytes() == other.tobytes()
    return bool((one.view(word) == other.view(word)).all())


def _applied(before: Any, change: Any) -> Any:
    if isinstance(change, Rows):
        grown = np.empty((len(before) + len(change.rows), *before.shape[1:]), before.dtype)
        grown[: len(before)], grown[len(before) :] = before, change.rows
        return grown
    if not isinstance(change, Changes):
        return change
    if isinstance(before, dict):
        keys = before if change.keys is None else change.keys
        return {key: _entry(before.get(key), change, key) for key in keys}
    indices = range(len(before)) if change.keys is None else change.keys
    return [_entry(before[k] if k < len(before) else None, change, k) for k in indices]


def _entry(before: Any, changes: Changes, key: Any) -> Any:
    return _applied(before, changes.entries[key]) if key in changes.entries else before


def _arrays(tree: Any) -> Iterator[Array]:
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, dict | list):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _arrays(value)


def _copied(tree: Any) -> Any:
    if type(tree) is np.ndarray:
        return tree.copy()
    if type(tree) is dict:
        return {key: _copied(value) for key, value in tree.items()}
    if type(tree) is list:
        return [_copied(value) for value in tree]
    return tree
