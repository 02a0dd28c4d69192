"""Sequences of rows from replay, for policies with memory.

Windows with burn-in and their priorities: Kapturowski et al., 2019 (R2D2),
https://openreview.net/forum?id=r1lyTjAqYX, sections 2.3 and 3.
"""

import dataclasses

import numpy as np

from minding.engine.buffers.priorities import UNKNOWN, Priorities, Priority
from minding.engine.buffers.ring import Ring
from minding.engine.buffers.row_order import RowOrder
from minding.engine.data.batch import IndexedBatch
from minding.engine.errors import ConfigError
from minding.engine.types import Array, StateDict

_FEW = 64
"""Number of slots of windows at the start."""


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Sequences of rows, which a buffer samples in place of single ones."""

    length: int
    burn_in: int = 0
    stride: int = 1
    whole: bool = False
    from_each_row: bool = False

    def check(self, capacity: int, prioritized: bool = False) -> None:
        """Refuses sequences that do not fit into a buffer, or that skip rows."""
        length, burn_in, stride = self.length, self.burn_in, self.stride
        if length < 1 or burn_in < 0 or burn_in + length > capacity:
            raise ConfigError(
                f"buffer of sequences: expected length >= 1, burn_in >= 0 and both together at most the capacity of "
                f"{capacity} rows, got length={length}, burn_in={burn_in}"
            )
        if stride < 1 or length % stride:
            fitting = [n for n in range(1, length + 1) if length % n == 0]
            nearest = min(fitting, key=lambda n: abs(n - stride))
            raise ConfigError(
                f"buffer of sequences: expected a stride that divides length={length}, got {stride}: some rows would "
                f"be in more sequences than others; use {nearest}"
            )
        if self.whole and (burn_in or prioritized):
            what = "they are sampled uniformly" if prioritized else f"set burn_in=0, not {burn_in}"
            raise ConfigError(f"buffer of sequences: whole episodes begin with an empty memory: {what}")


@dataclasses.dataclass(slots=True, kw_only=True)
class SequenceBatch(IndexedBatch):
    """Sequences of rows, in the order of time: index int32 ``(K, T, B)``.

    The first places belong to the burn-in, which only brings the memory of the policy up to date. The rows to learn
    from begin at the same place in all sequences: a shorter burn-in is padded at its start with copies of its first
    row, and a shorter sequence at its end with copies of its last row.

    Attributes:
      filled: bool ``(K, T, B)``, false at places with a repeated row.
      window: int64 ``(K, B)``, the numbers of the sequences in a buffer that samples by priority.
    """

    filled: Array
    burn_in: int
    window: Array | None = None

    @property
    def learned(self) -> Array:
        """Bool ``(K, T, B)``, true for rows to learn from."""
        learned = self.filled.copy()
        learned[:, : self.burn_in] = False
        return learned


def sequences_from(
    ring: Ring, first: Array, count: Array, length: int, burn_in: int = 0, weight: Array | None = None
) -> SequenceBatch:
    """The sequences whose rows to learn from begin at the rows `first`, int64 ``(K, B)``, and are at most `count`,
    int64 ``(K, B)``, as far as their episodes are stored; `weight`: their importance weights, float32 ``(K, B)``."""
    assert ring.order is not None
    parts = ring.order.precede(first, burn_in), window(ring.order, first, count, length)
    index, filled = (np.moveaxis(np.concatenate(both, axis=-1), -1, 1) for both in zip(*parts, strict=True))
    drawn = ring.batch(np.ascontiguousarray(index % ring.capacity, np.int32), weight)
    return SequenceBatch(
        layout=drawn.layout,
        tables=drawn.tables,
        index=drawn.index,
        weight=weight,
        successor=drawn.successor,
        filled=np.ascontiguousarray(filled),
        burn_in=burn_in,
    )


def window(order: RowOrder, first: Array, count: Array, length: int) -> tuple[Array, Array]:
    """Up to `count` rows that start at `first`, as far as their episodes are stored: int64 ``(..., length)``, padded
    with the last one, and bool, false at the padding."""
    index, filled = order.follow(first, length)
    last, place = count[..., None] - 1, np.arange(length)
    return np.where(place <= last, index, np.take_along_axis(index, last, axis=-1)), filled & (place <= last)


class UniformWindows:
    """Windows within episodes, all equally likely, such that learning uses each stored row equally often.

    A window may begin up to ``length - 1`` rows before the first stored row of an episode, and may reach beyond its
    end; it then contains only the rows that exist. So each row is in exactly `length` windows. With
    ``Sequences.from_each_row``, a window begins at each stored row, and none before the first one. With
    ``Sequences.whole``, the windows are the episodes that ended and are still stored completely.
    """

    def __init__(self, order: RowOrder, sequences: Sequences) -> None:
        self._order, self._sequences = order, sequences

    @property
    def ready(self) -> bool:
        """Whether there is a window."""
        order = self._order
        return len(order.episodes()) > 0 if self._sequences.whole else order.added > order.oldest

    def draw(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Array, Array, int]:
        """The first rows of windows, their maximum numbers of rows, and the number of places for them."""
        if self._sequences.whole:
            first, length = self._draw_episodes(shape, rng)
            return first, np.full(shape, length), length
        order, early = self._order, 0 if self._sequences.from_each_row else self._sequences.length - 1
        size = order.added - order.oldest
        drawn = rng.integers(0, size + len(order.heads) * early, size=shape)
        first, count = order.oldest + drawn, np.full(shape, self._sequences.length)
        # Windows that begin before the first row.
        clipped = drawn >= size
        head, count[clipped] = np.divmod(drawn[clipped] - size, max(early, 1))
        first[clipped], count[clipped] = order.heads[head], count[clipped] + 1
        return first, count, self._sequences.length

    def _draw_episodes(self, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Array, int]:
        """The first rows of episodes, and their length: all, a half or a quarter of the longest possible one, so that
        short episodes are learned from in a fraction of the time, and a graph is compiled three times at most."""
        episodes, length = self._order.episodes(), self._sequences.length
        first: Array = episodes[rng.integers(0, len(episodes), size=shape)]
        last, left = self._order.ahead(first, np.full(shape, length - 1))
        if not self._order.ended(last).all():
            raise ConfigError(
                f"buffer of sequences: an episode has more than length={length} rows: raise it to the time limit of "
                "the environment"
            )
        longest = length - int(left.min())
        return first, min(places for places in (length, -(-length // 2), -(-length // 4)) if places >= longest)


class PrioritizedWindows:
    """Windows that are sampled by priority.

        p = eta max_t |e_t| + (1 - eta) mean_t |e_t|        (e_t: errors of the rows to learn from)

    A window begins at every `stride`-th row of an episode. Further windows begin before the first row and contain only
    the rows that exist, as do windows that reach beyond the end: each row is in exactly ``length / stride`` windows. A
    window can be sampled as soon as its first row is stored, and grows with its episode. While it grows, and until it
    is learned from after that, its priority follows from the errors that its rows brought (`priority_calculator`), or
    is the highest one so far if they brought none. `Priorities` defines the sampling.
    """

    def __init__(self, order: RowOrder, capacity: int, sequences: Sequences, priority: Priority) -> None:
        self._order, self._capacity = order, capacity
        self._length, self._stride, self._eta = sequences.length, sequences.stride, priority.eta
        self._windows = Windows()
        self.priorities = Priorities(self._windows.slots, priority)
        # By place in the ring, the errors that rows brought.
        self._given = np.full(capacity, UNKNOWN, np.float32)
        # The windows that are still growing.
        self._growing = np.zeros(0, np.int64)
        # By environment, the number of rows since the last window began.
        self._since: dict[int, int] = {}

    def add(self, places: Array, sequence: Array, errors: Array | float) -> None:
        """Takes in new rows (n,), which the order contains already."""
        if not len(places):
            return
        self._given[places] = errors
        self.priorities.forget(self._windows.drop(self._order.oldest))
        begun = self._begin(self._order.added - len(places) + np.arange(len(places)), sequence)
        growing = np.concatenate([self._growing, begun])
        growing = growing[self._windows.held(growing)]
        count = self._windows.count(growing)
        index, filled = window(self._order, self._windows.first(growing), count, self._length)
        self.priorities.begin(self._windows.slot(growing), self._first_priority(index, filled))
        self._growing = growing[(filled.sum(axis=1) < count) & self._order.running(index[:, -1])]

    def draw(self, updates: int, batch_size: int, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
        """Numbers of windows, their first rows, their maximum numbers of rows, and their importance weights."""
        slots, weight = self.priorities.draw(updates, batch_size, rng)
        drawn = self._windows.number(slots)
        return drawn, self._windows.first(drawn), self._windows.count(drawn), weight

    def update(self, batch: SequenceBatch, errors: Array) -> None:
        """Sets the priorities of sampled windows from the errors of their rows, float32 ``(K, T, B)``."""
        assert batch.window is not None
        mixed, drawn = mix(errors, batch.learned, self._eta), batch.window
        held = self._windows.held(drawn)
        self.priorities.write(self._windows.slot(drawn[held]), mixed[held])

    def _begin(self, rows: Array, sequence: Array) -> Array:
        """Adds the windows that begin with new rows (n,) of these environments (n,); returns their numbers."""
        heads, begins = self._order.headed(rows), np.zeros(len(rows), np.bool_)
        for number in np.unique(sequence).tolist():
            mine = np.flatnonzero(sequence == number)
            place = np.arange(len(mine))
            age = place - np.maximum.accumulate(np.where(heads[mine], place, -self._since.get(number, 0)))
            begins[mine] = age % self._stride == 0
            self._since[number] = int(age[-1] + 1) % self._stride
        # Each window that begins before the first row is shorter by one more stride.
        parts = self._length // self._stride
        repeats = np.where(heads, parts, 1)[begins]
        shorter = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        if not self._windows.room(len(shorter)):
            held = self._windows.numbers
            slots = self._windows.slot(held)
            self._windows.grow(len(shorter))
            self.priorities.move(self._windows.slots, slots, self._windows.slot(held))
        return self._windows.add(np.repeat(rows[begins], repeats), self._length - self._stride * shorter)

    def _first_priority(self, index: Array, filled: Array) -> Array:
        """Priorities (n,) of windows that were not learned from, `UNKNOWN` if a row brought none."""
        errors = self._given[index % self._capacity]
        known = (errors != UNKNOWN).all(axis=1)
        return np.where(known, mix(errors.T, filled.T, self._eta), UNKNOWN)

    def state_dict(self, rows: int) -> StateDict:
        return {
            "windows": self._windows.state_dict(),
            **self.priorities.state_dict(self._windows.slot(self._windows.numbers)),
            "given": self._given[:rows].copy(),
            "growing": self._growing.copy(),
            "since": {str(number): count for number, count in self._since.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        self._windows.load_state_dict(state["windows"])
        slots = self._windows.slot(self._windows.numbers)
        self.priorities.load_state_dict(state, slots, self._windows.slots)
        self._given[:] = UNKNOWN
        self._given[: len(state["given"])] = state["given"]
        self._growing = np.array(state["growing"], np.int64)
        self._since = {int(number): int(count) for number, count in state["since"].items()}


def mix(errors: Array, learned: Array, eta: float) -> Array:
    """``eta max + (1 - eta) mean`` of the errors of the rows to learn from (`learned`, bool ``(..., T, B)``, at least
    one of each sequence): float64 ``(..., B)``, NaN for a sequence with such an error."""
    sizes = np.where(learned, errors.astype(np.float64), 0.0)
    mixed: Array = eta * sizes.max(axis=-2) + (1.0 - eta) * sizes.sum(axis=-2) / learned.sum(axis=-2)
    return mixed


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
        return len(self._first)

    @property
    def numbers(self) -> Array:
        """Int64, the numbers of the held windows."""
        return np.arange(self._oldest, self._added)

    def slot(self, numbers: Array) -> Array:
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
        """Adds windows that begin no earlier than the ones before, by their first rows and numbers of rows, int64
        ``(n,)`` each (fewer at the end of an episode); returns the windows' numbers."""
        numbers = self._added + np.arange(len(first))
        self._first[self.slot(numbers)], self._count[self.slot(numbers)] = first, count
        self._added += len(first)
        return numbers

    def state_dict(self) -> StateDict:
        numbers = self.numbers
        return {"slots": self.slots, "oldest": self._oldest, "first": self.first(numbers), "count": self.count(numbers)}

    def load_state_dict(self, state: StateDict) -> None:
        self._clear(int(state["slots"]), int(state["oldest"]))
        self.add(np.asarray(state["first"]), np.asarray(state["count"]))
