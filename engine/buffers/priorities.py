"""Priorities of rows or sequences in a buffer (Schaul et al., 2016, https://arxiv.org/abs/1511.05952, sections 3.3 and
3.4), and the sums over which rows are found by priority."""

import dataclasses

import numpy as np

from minding.engine.errors import ConfigError, NonFiniteError
from minding.engine.types import Array, StateDict

SMALLEST = 1e-6
"""Added to every priority, so that each row can be sampled again."""
UNKNOWN = -1.0
"""Marks rows that were never learned from, whose priority is the highest one so far."""
LARGEST = float(np.finfo(np.float32).max)
"""The largest priority: learners return float32, and the sum over all rows stays finite."""
HEIGHT = 8
"""Minimum number of levels of the trees over blocks of a `SumTree`."""
ROOTS = 1 << 12
"""Maximum number of blocks: each sampling adds up their sums and searches them as one sorted array."""


@dataclasses.dataclass(frozen=True)
class Priority:
    """Priorities of the rows of a buffer, and the samples by them.

    w_i = (N P(i))^-beta / max_j w_j,   the largest of a minibatch is 1
    """

    alpha: float = 0.6
    beta: float = 0.4
    beta_steps: int = 100_000
    eta: float = 0.9

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "eta"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"priority: expected {name} in [0, 1], got {getattr(self, name)}")
        if self.beta_steps < 1:
            raise ConfigError(f"priority: expected beta_steps >= 1, got {self.beta_steps}")

    def beta_after(self, minibatches: int) -> float:
        """The exponent of the weights after a number of minibatches."""
        return self.beta + (1.0 - self.beta) * min(1.0, minibatches / self.beta_steps)

    def weights(self, mass: Array, minibatches: int) -> Array:
        """The importance weights of minibatches, float32 ``(K, B)``, from their sampling probabilities, float64 ``(K,
        B)``, above 0, up to a factor per minibatch."""
        weight = np.empty(mass.shape, np.float32)
        for k, row in enumerate(mass):
            weight[k] = (row / row.min()) ** -self.beta_after(minibatches + k)
        return weight


def checked_errors(errors: Array) -> Array:
    """Errors as float64."""
    given: Array = errors.astype(np.float64)
    if not np.isfinite(given).all():
        raise NonFiniteError(f"priority {np.flatnonzero(~np.isfinite(given))[0]} of those given is NaN or infinite")
    if (given < 0.0).any():
        raise ConfigError(f"priority {given.min()}: expected the size of an error, at least 0")
    if (given > LARGEST).any():
        raise ConfigError(f"priority {given.max():g}: expected at most {LARGEST:.1e}, the range of float32")
    return given


class Priorities:
    """Samples rows in proportion to ``(priority + SMALLEST)^alpha``, one from each of B equal parts of the sum."""

    def __init__(self, capacity: int, priority: Priority) -> None:
        self._capacity, self._priority = capacity, priority
        self._tree = SumTree(capacity)
        self._highest, self.minibatches = 1.0, 0

    @property
    def beta(self) -> float:
        """Exponent of the weights of the next minibatch."""
        return self._priority.beta_after(self.minibatches)

    def begin(self, rows: Array, given: Array) -> None:
        """Adds rows, int64 ``(n,)``, that were never learned from."""
        known = given != UNKNOWN
        scaled = np.full(len(rows), self._highest)
        if known.any():
            scaled[known] = self._scaled(given[known])
            self._highest = max(self._highest, float(scaled.max()))
        self._tree.write(rows, scaled)

    def write(self, rows: Array, priorities: Array) -> None:
        """Sets the priorities (n,) of rows (n,); for a row that occurs twice the last one counts."""
        scaled = self._scaled(priorities)
        self._tree.write(rows, scaled)
        self._highest = max(self._highest, float(scaled.max(initial=0.0)))

    def forget(self, rows: Array) -> None:
        """Removes rows (n,), which are no longer sampled."""
        self._tree.write(rows, np.zeros(len(rows)))

    def move(self, capacity: int, rows: Array, places: Array) -> None:
        """Moves rows (n,) with their priorities to other places (n,), of `capacity`."""
        kept = self._tree.read(rows)
        self._capacity, self._tree = capacity, SumTree(capacity)
        self._tree.write(places, kept)

    def draw(self, updates: int, batch_size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Samples `updates` minibatches of `batch_size`: rows int64 and importance weights float32, ``(updates,
        batch_size)`` each. At least one row must have a priority."""
        part = np.arange(batch_size) + rng.random((updates, batch_size))
        rows = self._tree.find(part * (self._tree.total / batch_size))
        found = self._tree.read(rows)
        if not found.all():
            # Rounding may lead to rows without a priority, such as rows past the last one: take the row before.
            having = np.flatnonzero(self._tree.read(np.arange(self._capacity)))
            rows = having[np.maximum(np.searchsorted(having, rows, side="right") - 1, 0)]
            found = self._tree.read(rows)
        weight = self._priority.weights(found, self.minibatches)
        self.minibatches += updates
        return rows, weight

    def _scaled(self, priorities: Array) -> Array:
        scaled: Array = (checked_errors(priorities) + SMALLEST) ** self._priority.alpha
        return scaled

    def state_dict(self, rows: Array) -> StateDict:
        """State of a buffer that holds these rows."""
        return {"priorities": self._tree.read(rows), "highest": self._highest, "drawn": self.minibatches}

    def load_state_dict(self, state: StateDict, rows: Array, capacity: int) -> None:
        """Restores the priorities of the same rows, of `capacity`."""
        self._capacity, self._tree = capacity, SumTree(capacity)
        self._tree.write(rows, np.asarray(state["priorities"]))
        self._highest, self.minibatches = float(state["highest"]), int(state["drawn"])


class SumTree:
    """Priorities of rows, float64; reading and writing n of them takes O(n).

    Blocks hold ``2^HEIGHT`` rows or more, each with a binary tree whose inner nodes are the sums of their two children;
    the running sum over the trees' roots finds the block. The whole structure follows from the priorities alone.
    """

    def __init__(self, capacity: int) -> None:
        depth = max(1, (capacity - 1).bit_length())
        self._leaves = 1 << depth
        self._height = min(depth, max(HEIGHT, depth + 1 - ROOTS.bit_length()))
        # Indexed like one tree over all rows: node i is the sum of 2i and 2i + 1. Nodes above the roots are not kept.
        self._tree = np.zeros(2 * self._leaves)
        self._first_root = self._leaves >> self._height
        self._roots = self._tree[self._first_root : 2 * self._first_root]

    @property
    def total(self) -> float:
        return float(self._bounds()[-1])

    def read(self, rows: Array) -> Array:
        """Priorities of rows, float64 of the same shape."""
        priorities: Array = self._tree[self._leaves + rows]
        return priorities

    def write(self, rows: Array, priorities: Array) -> None:
        """Sets priorities (n,) of rows (n,); for a row that occurs twice the last one counts."""
        tree, node = self._tree, self._leaves + rows
        tree[node] = priorities
        for _ in range(self._height):
            node = node >> 1
            left = node << 1
            tree[node] = tree[left] + tree[left + 1]

    def find(self, mass: Array) -> Array:
        """The rows at which the running sum of priorities passes `mass`, in [0, total); int64 of the same shape."""
        bounds = self._bounds()
        root = np.searchsorted(bounds[1:-1], mass, side="right")
        tree, node = self._tree, self._first_root + root
        mass = mass - bounds[root]
        for _ in range(self._height):
            node = node << 1
            left = tree[node]
            right = mass >= left
            mass -= left * right
            node += right
        rows: Array = node - self._leaves
        return rows

    def _bounds(self) -> Array:
        """The running sum of priorities before each block and, last, after all of them."""
        bounds = np.zeros(len(self._roots) + 1)
        np.cumsum(self._roots, out=bounds[1:])
        return bounds
