"""Proportional prioritized replay (Schaul et al., 2016, https://arxiv.org/abs/1511.05952, section 3.3 and 3.4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.ring import Ring
from minding.engine.buffers.sum_tree import SumTree
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError, NonFiniteError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict

SMALLEST = 1e-6
"""Added to every priority, so that each row can be drawn again."""


class PrioritizedBuffer:
    """A ring of transitions, drawn in proportion to ``(priority + SMALLEST)^alpha``, one from each of B equal parts of
    the sum. New rows have the highest priority seen so far.

        w_i = (N P(i))^-beta / max_j w_j,   the largest of a minibatch is 1

    Args:
      capacity: number of transitions kept; the oldest is overwritten first.
      fields: name -> Field, usually ``policy.learn_mode.fields``.
      alpha: 0 draws uniformly, 1 in proportion to the priority.
      beta: exponent of the importance weights at the start; it rises linearly to 1.
      beta_steps: number of minibatches drawn until then.
      images_once: store images once: those of `next_obs` are found at the row that follows. Rows are pushed by a
        `data_pusher` then, which says what follows what.
      seed: of the sampling stream.
    """

    prioritized = True
    """Whether it wants priorities back from learning, see `update`."""

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field],
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        beta_steps: int = 100_000,
        images_once: bool = False,
        seed: int = 0,
    ) -> None:
        self.ring = Ring(capacity, RowLayout(fields, images_once=images_once))
        self.capacity = capacity
        self._alpha, self._beta, self._beta_steps = alpha, beta, beta_steps
        self._tree = SumTree(capacity)
        self._highest, self._drawn = 1.0, 0
        self._rng = SeedStreams(seed).generator("buffer")

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.ring.layout.fields

    @property
    def takes_order(self) -> bool:
        """Whether rows come with `engine.buffers.ring.ORDER`."""
        return self.ring.links is not None

    @property
    def beta(self) -> float:
        """Exponent of the weights of the next minibatch."""
        return self._beta + (1.0 - self._beta) * min(1.0, self._drawn / self._beta_steps)

    def __len__(self) -> int:
        return len(self.ring)

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Appends transitions, one array ``(n, *shape)`` per field."""
        rows = self.ring.push(transitions)
        self._tree.write(rows, np.full(len(rows), self._highest))

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Draws the rows of `updates` minibatches of `batch_size`, with their importance weights.

        Raises:
          ConfigError: if the buffer is empty. Check `len(buffer)` first.
        """
        if not len(self):
            raise ConfigError("sample from an empty buffer: push transitions first (data_pusher), or wait for warm-up")
        total = self._tree.total
        part = np.arange(batch_size) + self._rng.random((updates, batch_size))
        # Rounding may lead past the last row.
        rows = np.minimum(self._tree.find(part * (total / batch_size)), len(self) - 1)
        weight = np.empty(rows.shape, np.float32)
        for k, priorities in enumerate(self._tree.read(rows)):
            weight[k] = (priorities / priorities.min()) ** -self.beta
            self._drawn += 1
        return self.ring.batch(rows.astype(np.int32), weight)

    def update(self, index: Array, priorities: Array) -> None:
        """Sets the priorities of drawn rows; of a row drawn twice the last one stays.

        Args:
          index: int (K, B), as drawn.
          priorities: float32 (K, B), at least 0: sizes of the errors.

        Raises:
          NonFiniteError: if one is NaN or infinite; nothing is written then.
        """
        given = priorities.reshape(-1).astype(np.float64)
        if not np.isfinite(given).all():
            raise NonFiniteError(f"priority of row {index.reshape(-1)[~np.isfinite(given)][0]} is NaN or infinite")
        scaled = (given + SMALLEST) ** self._alpha
        self._tree.write(index.reshape(-1).astype(np.int64), scaled)
        self._highest = max(self._highest, float(scaled.max()))

    def state_dict(self) -> StateDict:
        return {
            "ring": self.ring.state_dict(),
            "priorities": self._tree.read(np.arange(len(self))),
            "highest": self._highest,
            "drawn": self._drawn,
            "rng": generator_state(self._rng),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        self._tree = SumTree(self.capacity)
        self._tree.write(np.arange(len(self)), np.asarray(state["priorities"]))
        self._highest, self._drawn = float(state["highest"]), int(state["drawn"])
        restore_generator(self._rng, state["rng"])
