"""Windows of stored rows: where each begins, how many rows it has, and in which slot its priority is."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array, StateDict

_FEW = 64


class Windows:
    """Windows in the order in which they begin. They go by their number in the order of all that were ever added.

    Each has a slot, its number modulo the number of slots, as long as its first row is stored. There are as many slots
    as it takes.
    """

    def __init__(self) -> None:
        self._clear(_FEW, 0)

    def _clear(self, slots: int, oldest: int) -> None:
        self._first, self._count = np.zeros((2, slots), np.int64)
        self._oldest = self._added = oldest

    @property
    def slots(self) -> int:
        """Number of slots."""
        return len(self._first)

    @property
    def numbers(self) -> Array:
        """Int64, the windows that are held."""
        return np.arange(self._oldest, self._added)

    def slot(self, numbers: Array) -> Array:
        """The slots of windows."""
        return numbers % self.slots

    def number(self, slots: Array) -> Array:
        """The windows in slots: inverse of `slot`."""
        return self._oldest + (slots - self._oldest) % self.slots

    def held(self, numbers: Array) -> Array:
        """Bool, which windows are still held."""
        held: Array = numbers >= self._oldest
        return held

    def first(self, numbers: Array) -> Array:
        """Int64, the first rows of windows."""
        first: Array = self._first[self.slot(numbers)]
        return first

    def count(self, numbers: Array) -> Array:
        """Int64, how many rows windows have."""
        count: Array = self._count[self.slot(numbers)]
        return count

    def drop(self, oldest_row: int) -> Array:
        """Drops the windows that begin before a row, and returns their slots."""
        begin, low, high = self._oldest, self._oldest, self._added
        while low < high:
            middle = (low + high) // 2
            if self._first[middle % self.slots] < oldest_row:
                low = middle + 1
            else:
                high = middle
        self._oldest = low
        return self.slot(np.arange(begin, low))

    def room(self, more: int) -> bool:
        """Whether there are slots for that many more."""
        return len(self.numbers) + more <= self.slots

    def grow(self, more: int) -> None:
        """Doubles the slots until there are enough for that many more. All windows change their slots."""
        numbers, slots = self.numbers, self.slots
        first, count = self.first(numbers), self.count(numbers)
        while len(numbers) + more > slots:
            slots *= 2
        self._clear(slots, self._oldest)
        self.add(first, count)

    def add(self, first: Array, count: Array) -> Array:
        """Adds windows, which begin no earlier than those before them; returns their numbers.

        Args:
          first: int64 (n,), their first rows.
          count: int64 (n,), how many rows they have; fewer where the episode ends.
        """
        numbers = self._added + np.arange(len(first))
        self._first[self.slot(numbers)], self._count[self.slot(numbers)] = first, count
        self._added += len(first)
        return numbers

    def state_dict(self) -> StateDict:
        numbers = self.numbers
        return {
            "slots": self.slots,
            "oldest": self._oldest,
            "first": self.first(numbers),
            "count": self.count(numbers),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self._clear(int(state["slots"]), int(state["oldest"]))
        self.add(np.asarray(state["first"]), np.asarray(state["count"]))
