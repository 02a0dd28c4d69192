"""Rows of running episodes, kept until the episodes are complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from minding.engine.data.rollout import Rollout
from minding.engine.types import Array, StateDict

_FEW = 16


class OpenEpisodes:
    """Gathers rollouts of any length into complete episodes.

    An episode is complete when it ends, or when the next row does not continue it: after a fault, or where a resumed
    run starts new episodes. The episodes of different collectors are kept apart.

    Args:
      longest: largest number of rows of an episode; after it the episode is passed on, and its later rows form another.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rows: dict[int, _Rows] = {}

    def add(self, rollout: Rollout, columns: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
        """Adds the rows of a rollout that are ready, and yields the episodes that they complete.

        Args:
          rollout: gives the rows that are ready, and the places where episodes begin and end.
          columns: arrays to keep, ``(T, N, ...)`` by name; the names are the same in every rollout.

        Yields:
          The columns ``(L, ...)`` of each episode by name, as copies, in the order in which the episodes complete.
        """
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
