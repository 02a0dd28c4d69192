"""The choice of rows that a table samples, and of those that it removes when it is full (selectors of Cassirer et al.,
2021, https://arxiv.org/abs/2102.04736, section 3.2)."""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

import numpy as np

from minding.engine.buffers.priorities import SumTree
from minding.engine.errors import ConfigError, nearest
from minding.engine.types import Array, StateDict


class Selector(Protocol):
    """Chooses among places that hold an item. An item has a priority, a number of at least 0.

    Places are int64 ``(n,)``, priorities float64 ``(n,)``.
    """

    def insert(self, places: Array, priorities: Array) -> None:
        """Adds new places, in this order."""
        ...

    def update(self, places: Array, priorities: Array) -> None:
        """Changes the priorities of places; for a place that occurs twice the last one counts."""
        ...

    def remove(self, places: Array) -> None:
        """Removes places."""
        ...

    def choose(self, rng: np.random.Generator) -> tuple[int, float]:
        """Returns a place and the probability with which it was chosen; there must be at least one."""
        ...

    def choose_many(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Chooses `count` times with no change in between: places int64 ``(count,)``, probabilities float64."""
        ...

    def state_dict(self) -> StateDict:
        """The whole state on which later choices depend."""
        ...

    def load_state_dict(self, state: StateDict) -> None: ...


class Uniform:
    """Chooses each place with the same probability."""

    def __init__(self, capacity: int) -> None:
        # The places in use are at the beginning of one array; the other has the position of each place.
        self._held, self._where, self._count = np.zeros(capacity, np.int64), np.zeros(capacity, np.int64), 0

    def insert(self, places: Array, priorities: Array) -> None:
        end = self._count + len(places)
        self._held[self._count : end], self._where[places] = places, np.arange(self._count, end)
        self._count = end

    def update(self, places: Array, priorities: Array) -> None:
        """Priorities change nothing."""

    def remove(self, places: Array) -> None:
        for place in places.tolist():
            self._count -= 1
            hole, last = self._where[place], self._held[self._count]
            self._held[hole], self._where[last] = last, hole

    def choose(self, rng: np.random.Generator) -> tuple[int, float]:
        return int(self._held[rng.integers(self._count)]), 1.0 / self._count

    def choose_many(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return self._held[rng.integers(self._count, size=count)], np.full(count, 1.0 / self._count)

    def state_dict(self) -> StateDict:
        return {"held": self._held[: self._count].copy()}

    def load_state_dict(self, state: StateDict) -> None:
        held = np.asarray(state["held"])
        self._count = len(held)
        self._held[: self._count], self._where[held] = held, np.arange(self._count)


class Prioritized:
    """Chooses each place in proportion to its priority to the power of `exponent` (Schaul et al., 2016,
    https://arxiv.org/abs/1511.05952, eq. 1). If all priorities are 0, all places are equally likely."""

    def __init__(self, capacity: int, exponent: float = 1.0) -> None:
        self._tree, self._exponent = SumTree(capacity), exponent
        self._places = Uniform(capacity)

    def insert(self, places: Array, priorities: Array) -> None:
        self._places.insert(places, priorities)
        self.update(places, priorities)

    def update(self, places: Array, priorities: Array) -> None:
        self._tree.write(places, priorities**self._exponent)

    def remove(self, places: Array) -> None:
        self._places.remove(places)
        self._tree.write(places, np.zeros(len(places)))

    def choose(self, rng: np.random.Generator) -> tuple[int, float]:
        places, probability = self.choose_many(1, rng)
        return int(places[0]), float(probability[0])

    def choose_many(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        total = self._tree.total
        if total <= 0.0:
            return self._places.choose_many(count, rng)
        places = self._tree.find(rng.random(count) * total)
        mass = self._tree.read(places)
        while not mass.all():
            # Rounding can lead to a place without priority.
            again = mass == 0.0
            places[again] = self._tree.find(rng.random(int(again.sum())) * total)
            mass = self._tree.read(places)
        return places, mass / total

    def state_dict(self) -> StateDict:
        held = self._places.state_dict()
        return {**held, "mass": self._tree.read(held["held"])}

    def load_state_dict(self, state: StateDict) -> None:
        self._places.load_state_dict(state)
        self._tree.write(np.asarray(state["held"]), np.asarray(state["mass"]))


class Ordered:
    """Chooses the oldest or the newest place, in the order in which places were inserted; updates do not change it."""

    def __init__(self, newest: bool) -> None:
        self._newest = newest
        # A linked list, because finding the ends of a dict is slow after many removals there.
        self._order: OrderedDict[int, None] = OrderedDict()

    def insert(self, places: Array, priorities: Array) -> None:
        self._order.update(dict.fromkeys(places.tolist()))

    def update(self, places: Array, priorities: Array) -> None:
        """Priorities change nothing."""

    def remove(self, places: Array) -> None:
        for place in places.tolist():
            del self._order[place]

    def choose(self, rng: np.random.Generator) -> tuple[int, float]:
        return next(reversed(self._order) if self._newest else iter(self._order)), 1.0

    def choose_many(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return np.full(count, self.choose(rng)[0]), np.ones(count)

    def state_dict(self) -> StateDict:
        return {"order": np.array(list(self._order), np.int64)}

    def load_state_dict(self, state: StateDict) -> None:
        self._order = OrderedDict.fromkeys(np.asarray(state["order"]).tolist())


class Heap:
    """Chooses the place of the lowest or the highest priority; among equals, the one that was inserted or updated least
    recently."""

    def __init__(self, highest: bool) -> None:
        self._sign = -1.0 if highest else 1.0
        self._heap: list[tuple[float, int, int]] = []
        self._known: dict[int, tuple[float, int]] = {}
        self._count = 0

    def insert(self, places: Array, priorities: Array) -> None:
        # Entries of a place that changed since stay in the heap until they come up.
        for place, key in zip(places.tolist(), (self._sign * priorities).tolist()):
            self._known[place] = key, self._count
            heapq.heappush(self._heap, (key, self._count, place))
            self._count += 1
        if len(self._heap) > 64 + 4 * len(self._known):
            self._heap = [(*key, place) for place, key in self._known.items()]
            heapq.heapify(self._heap)

    def update(self, places: Array, priorities: Array) -> None:
        self.insert(places, priorities)

    def remove(self, places: Array) -> None:
        for place in places.tolist():
            del self._known[place]

    def choose(self, rng: np.random.Generator) -> tuple[int, float]:
        while True:
            priority, count, place = self._heap[0]
            if self._known.get(place) == (priority, count):
                return place, 1.0
            heapq.heappop(self._heap)

    def choose_many(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return np.full(count, self.choose(rng)[0]), np.ones(count)

    def state_dict(self) -> StateDict:
        places = np.array(list(self._known), np.int64)
        keys = list(self._known.values())
        return {
            "places": places,
            "keys": np.array([key for key, _ in keys], np.float64),
            "counts": np.array([count for _, count in keys], np.int64),
            "count": self._count,
        }

    def load_state_dict(self, state: StateDict) -> None:
        columns = (np.asarray(state[name]).tolist() for name in ("places", "keys", "counts"))
        self._known = {place: (key, count) for place, key, count in zip(*columns)}
        self._heap = [(*key, place) for place, key in self._known.items()]
        heapq.heapify(self._heap)
        self._count = int(state["count"])


_MAKERS: dict[str, Callable[[int, float], Selector]] = {
    "uniform": lambda capacity, exponent: Uniform(capacity),
    "prioritized": Prioritized,
    "fifo": lambda capacity, exponent: Ordered(newest=False),
    "lifo": lambda capacity, exponent: Ordered(newest=True),
    "min_heap": lambda capacity, exponent: Heap(highest=False),
    "max_heap": lambda capacity, exponent: Heap(highest=True),
}
SELECTORS = tuple(_MAKERS)
"""The names of all selectors."""
_BY_PRIORITY = ("prioritized", "min_heap", "max_heap")


def make_selector(name: str, capacity: int, exponent: float, what: str) -> Selector:
    """Returns the selector of a name."""
    if name not in _MAKERS:
        raise ConfigError(
            f"{what}={name!r} is unknown{nearest(str(name), SELECTORS)}; expected one of {', '.join(SELECTORS)}"
        )
    return _MAKERS[name](capacity, exponent)


def uses_priority(name: str) -> bool:
    """Whether the choice of the selector of this name depends on priorities."""
    return name in _BY_PRIORITY
