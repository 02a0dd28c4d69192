"""Priorities of rows or sequences in a buffer (Schaul et al., 2016, https://arxiv.org/abs/1511.05952, sections 3.3 and
3.4)."""

from __future__ import annotations

import numpy as np

from minding.engine.buffers.sum_tree import SumTree
from minding.engine.errors import ConfigError, NonFiniteError
from minding.engine.types import Array, StateDict

SMALLEST = 1e-6
"""Added to every priority, so that each row can be sampled again."""
UNKNOWN = -1.0
"""Marks rows that were never learned from, whose priority is the highest one so far."""


class Priorities:
    """Samples rows in proportion to ``(priority + SMALLEST)^alpha``, one from each of B equal parts of the sum.

        w_i = (N P(i))^-beta / max_j w_j,   the largest of a minibatch is 1

    Args:
      capacity: number of rows; rows without a priority are not sampled.
      alpha: 0 samples uniformly, 1 in proportion to the priority.
      beta: exponent of the importance weights at the start; it rises linearly to 1.
      beta_steps: number of minibatches after which beta is 1.

    Attributes:
      drawn: number of minibatches so far.

    Raises:
      ConfigError: if one of these is out of range.
    """

    def __init__(self, capacity: int, alpha: float, beta: float, beta_steps: int) -> None:
        for name, value in {"alpha": alpha, "beta": beta}.items():
            if not 0 <= value <= 1:
                raise ConfigError(f"buffer that draws by priority: expected {name} in [0, 1], got {value}")
        if beta_steps < 1:
            raise ConfigError(f"buffer that draws by priority: expected beta_steps >= 1, got {beta_steps}")
        self._capacity = capacity
        self._alpha, self._beta, self._beta_steps = alpha, beta, beta_steps
        self._tree = SumTree(capacity)
        self._highest, self.drawn = 1.0, 0

    @property
    def beta(self) -> float:
        """Exponent of the weights of the next minibatch."""
        return self._beta + (1.0 - self._beta) * min(1.0, self.drawn / self._beta_steps)

    def begin(self, rows: Array, given: Array) -> None:
        """Adds rows that were never learned from.

        Args:
          rows: int64 (n,).
          given: their priorities, float (n,), or `UNKNOWN`.

        Raises:
          NonFiniteError, ConfigError: as in `write`.
        """
        known = given != UNKNOWN
        scaled = np.full(len(rows), self._highest)
        if known.any():
            scaled[known] = self._scaled(rows[known], given[known])
            self._highest = max(self._highest, float(scaled.max()))
        self._tree.write(rows, scaled)

    def write(self, rows: Array, priorities: Array) -> None:
        """Sets the priorities (n,) of rows (n,); for a row that occurs twice the last one counts.

        Raises:
          NonFiniteError: if a priority is NaN or infinite; nothing is written then.
          ConfigError: if a priority is negative; nothing is written then.
        """
        scaled = self._scaled(rows, priorities)
        self._tree.write(rows, scaled)
        self._highest = max(self._highest, float(scaled.max()))

    def forget(self, rows: Array) -> None:
        """Removes rows (n,), which are no longer sampled."""
        self._tree.write(rows, np.zeros(len(rows)))

    def move(self, capacity: int, rows: Array, places: Array) -> None:
        """Moves rows (n,) with their priorities to other places (n,), of `capacity`."""
        kept = self._tree.read(rows)
        self._capacity, self._tree = capacity, SumTree(capacity)
        self._tree.write(places, kept)

    def draw(self, updates: int, batch_size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Samples `updates` minibatches of `batch_size`.

        Returns:
          (rows int64, importance weights float32), ``(updates, batch_size)`` each.

        Raises:
          ConfigError: if no row has a priority.
        """
        total = self._tree.total
        if not total:
            raise ConfigError("sample from an empty buffer: push transitions first (data_pusher), or wait for warm-up")
        part = np.arange(batch_size) + rng.random((updates, batch_size))
        rows = self._tree.find(part * (total / batch_size))
        found = self._tree.read(rows)
        if not found.all():
            # Rounding may lead to rows without a priority, such as rows past the last one: take the row before.
            rows = self._with_priority(rows)
            found = self._tree.read(rows)
        weight = np.empty(rows.shape, np.float32)
        for k, priorities in enumerate(found):
            weight[k] = (priorities / priorities.min()) ** -self.beta
            self.drawn += 1
        return rows, weight

    def _with_priority(self, rows: Array) -> Array:
        """For each row, the last row up to it that has a priority, or else the first row with a priority."""
        having = np.flatnonzero(self._tree.read(np.arange(self._capacity)))
        nearest: Array = having[np.maximum(np.searchsorted(having, rows, side="right") - 1, 0)]
        return nearest

    def _scaled(self, rows: Array, priorities: Array) -> Array:
        given = priorities.astype(np.float64)
        if not np.isfinite(given).all():
            raise NonFiniteError(f"priority of row {rows[~np.isfinite(given)][0]} is NaN or infinite")
        if (given < 0.0).any():
            raise ConfigError(
                f"priority of row {rows[given < 0.0][0]} is {given.min()}: expected the size of an error, at least 0"
            )
        scaled: Array = (given + SMALLEST) ** self._alpha
        return scaled

    def state_dict(self, rows: Array) -> StateDict:
        """State of a buffer that holds these rows."""
        return {"priorities": self._tree.read(rows), "highest": self._highest, "drawn": self.drawn}

    def load_state_dict(self, state: StateDict, rows: Array, capacity: int) -> None:
        """Restores the priorities of the same rows, of `capacity`."""
        self._capacity, self._tree = capacity, SumTree(capacity)
        self._tree.write(rows, np.asarray(state["priorities"]))
        self._highest, self.drawn = float(state["highest"]), int(state["drawn"])
