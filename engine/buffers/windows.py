"""Windows of stored rows: the first row of each, its number of rows, and the slot of its priority."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array, StateDict

_FEW = 64


class Windows:
    """Windows in the order of their first rows, identified by their number in the order of all windows ever added.

    While its first row is stored, each window has a slot: its number modulo the number of slots. Slots are added as
    needed.
    """

    def __init__(self) -> None:
        self._clear(_FEW, 0)

    def _clear(self, slots: int, oldest: int) -> None:
        self._first, self._count = np.zeros((2, slots), np.int64)
        self._oldest = self._added = oldest

    @property
    def slots(self) -> int:
        """The number of slots."""
        return len(self._first)

    @property
    def numbers(self) -> Array:
        """Int64, the numbers of the held windows."""
        return np.arange(self._oldest, self._added)

    def slot(self, numbers: Array) -> Array:
        """The slots of windows."""
        return numbers % self.slots

    def number(self, slots: Array) -> Array:
        """The windows in slots: inverse of `slot`."""
        return self._oldest + (slots - self._oldest) % self.slots

    def held(self, numbers: Array) -> Array:
        """Bool, whether windows are still held."""
        held: Array = numbers >= self._oldest
        return held

    def first(self, numbers: Array) -> Array:
        """Int64, the first rows of windows."""
        first: Array = self._first[self.slot(numbers)]
        return first

    def count(self, numbers: Array) -> Array:
        """Int64, the numbers of rows of windows."""
        count: Array = self._count[self.slot(numbers)]
        return count

    def drop(self, oldest_row: int) -> Array:
        """Removes the windows that begin before a row, and returns their slots."""
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
        """Whether there are slots for that many more windows."""
        return len(self.numbers) + more <= self.slots

    def grow(self, more: int) -> None:
        """Doubles the slots until that many more windows fit. All windows change their slots."""
        numbers, slots = self.numbers, self.slots
        first, count = self.first(numbers), self.count(numbers)
        while len(numbers) + more > slots:
            slots *= 2
        self._clear(slots, self._oldest)
        self.add(first, count)

    def add(self, first: Array, count: Array) -> Array:
        """Adds windows that begin no earlier than the ones before; returns their numbers.

        Args:
          first: first rows of the windows, int64 (n,).
          count: numbers of rows, int64 (n,); smaller at the end of an episode.
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
