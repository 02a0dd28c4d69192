"""Versioned weights in shared memory: the learner publishes them, and workers copy the version of their request."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from minding.engine.errors import LaneError
from minding.engine.lanes.transport import Snapshot
from minding.engine.process.spawn import SPAWN
from minding.engine.types import Array

_ALIGNMENT = 64  # bytes
_FREE = -1


class SharedWeights:
    """A `WeightBoard` in shared memory that holds several versions, each in its own slot.

    The learner writes a version into a slot that no worker reads, and only then names it in a request; the slot is kept
    until the worker has answered. A slot is therefore never written while a worker may read it: torn reads are
    impossible, and there is no lock that a killed process could keep. Each slot also carries its version, which a
    reader checks before and after it copies.

    The board itself goes to worker processes as an argument of `multiprocessing.Process`; only the process that made
    it publishes.

    Args:
      arrays: name to array; gives shapes and dtypes.
      slots: number of versions that can be held at the same time.
    """

    def __init__(self, arrays: Mapping[str, Array], slots: int) -> None:
        self._layout: dict[str, tuple[int, tuple[int, ...], str]] = {}
        size = _ALIGNMENT
        for name, array in arrays.items():
            self._layout[name] = (size, array.shape, array.dtype.str)
            size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._slots, self._slot_size = slots, size
        self._block: Any = SPAWN.RawArray(ctypes.c_byte, size * slots)
        self._map()
        for stamp in self._stamps:
            stamp[0] = _FREE
        self._users = [0] * slots
        self._newest: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_layout", "_slots", "_slot_size", "_block")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()

    def _map(self) -> None:
        starts = [slot * self._slot_size for slot in range(self._slots)]
        self._stamps = [np.frombuffer(self._block, np.int64, 1, start) for start in starts]
        # A comparison of all bits, including the gaps between arrays, which stay zero.
        words = self._slot_size // 8
        self._contents = [np.frombuffer(self._block, np.int64, words, start)[_ALIGNMENT // 8 :] for start in starts]
        self._views = [{name: self._view(start, name) for name in self._layout} for start in starts]

    def _view(self, start: int, name: str) -> Array:
        offset, shape, dtype = self._layout[name]
        return np.frombuffer(self._block, dtype, int(np.prod(shape)), start + offset).reshape(shape)

    # The learner's side

    @property
    def version(self) -> int:
        return _FREE if self._newest is None else int(self._stamps[self._newest][0])

    def publish(self, arrays: Mapping[str, Array]) -> int:
        slot = next((s for s, users in enumerate(self._users) if not users and s != self._newest), None)
        if slot is None:
            raise LaneError(f"weights: all {self._slots} versions are in use; a version was not released")
        self._stamps[slot][0] = _FREE
        for name, view in self._views[slot].items():
            view[...] = arrays[name]
        if self._newest is None or not np.array_equal(self._contents[slot], self._contents[self._newest]):
            self._stamps[slot][0] = self.version + 1
            self._newest = slot
        return self.version

    def retain(self) -> Snapshot:
        assert self._newest is not None
        self._users[self._newest] += 1
        return Snapshot(self.version, self._newest)

    def release(self, snapshot: Snapshot) -> None:
        self._users[snapshot.place] -= 1

    # The readers' side

    def empty(self) -> dict[str, Array]:
        return {name: np.zeros(shape, dtype) for name, (_, shape, dtype) in self._layout.items()}

    def read(self, snapshot: Snapshot, into: Mapping[str, Array]) -> None:
        slot, version = snapshot.place, snapshot.version
        before = int(self._stamps[slot][0])
        for name, view in self._views[slot].items():
            into[name][...] = view
        after = int(self._stamps[slot][0])
        if not before == after == version:
            raise LaneError(f"weights: slot {slot} held version {before}, then {after}; expected {version}")
