"""Proportional prioritized replay (Schaul et al., 2016, https://arxiv.org/abs/1511.05952, sections 3.3 and 3.4)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.priorities import UNKNOWN, Priorities
from minding.engine.buffers.ring import Ring
from minding.engine.data.batch import PRIORITY, Field, IndexedBatch, RowLayout
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


class PrioritizedBuffer:
    """A ring of transitions, sampled in proportion to their priorities, with importance weights; see `Priorities`.

    New rows bring their own priority (`priority_calculator`), or get the highest one so far.

    Args:
      capacity: number of transitions kept; the oldest is overwritten first.
      fields: name -> Field, usually ``policy.learn_mode.fields``.
      alpha: 0 samples uniformly, 1 in proportion to the priority.
      beta: exponent of the importance weights at the start; it rises linearly to 1.
      beta_steps: number of minibatches after which beta is 1.
      images_once: store each image once: images of `next_obs` are read from the following row. Rows then have to be
        pushed by a `data_pusher`, which records their order.
      seed: seed of the sampling stream.
    """

    prioritized = True
    """Whether the buffer needs priorities from learning, see `update`."""

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
        self._priorities = Priorities(capacity, alpha, beta, beta_steps)
        self._rng = SeedStreams(seed).generator("buffer")

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.ring.layout.fields

    @property
    def takes_order(self) -> bool:
        """Whether new rows bring `engine.buffers.ring.ORDER`."""
        return self.ring.links is not None

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next minibatch."""
        return self._priorities.beta

    @property
    def drawn(self) -> int:
        """The number of minibatches so far, with which `beta` rises; a run that refills its buffer sets it."""
        return self._priorities.drawn

    @drawn.setter
    def drawn(self, minibatches: int) -> None:
        self._priorities.drawn = minibatches

    def __len__(self) -> int:
        return len(self.ring)

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Appends transitions, one array ``(n, *shape)`` per field, and optionally `PRIORITY` ``(n,)``."""
        rows = self.ring.push(transitions)
        self._priorities.begin(rows, np.asarray(transitions.get(PRIORITY, np.full(len(rows), UNKNOWN))))

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples the rows of `updates` minibatches of `batch_size`, with their importance weights.

        Raises:
          ConfigError: if the buffer is empty. Check `len(buffer)` first.
        """
        rows, weight = self._priorities.draw(updates, batch_size, self._rng)
        return self.ring.batch(rows.astype(np.int32), weight)

    def update(self, batch: IndexedBatch, priorities: Array) -> None:
        """Sets the priorities of sampled rows; for a row that occurs twice the last one counts.

        Args:
          batch: a result of `sample`.
          priorities: float32 (K, B), at least 0: absolute errors.

        Raises:
          NonFiniteError: if a priority is NaN or infinite; nothing is written then.
          ConfigError: if a priority is negative; nothing is written then.
        """
        self._priorities.write(batch.index.reshape(-1).astype(np.int64), priorities.reshape(-1))

    def state_dict(self) -> StateDict:
        return {
            "ring": self.ring.state_dict(),
            **self._priorities.state_dict(np.arange(len(self))),
            "rng": generator_state(self._rng),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        self._priorities.load_state_dict(state, np.arange(len(self)), self.capacity)
        restore_generator(self._rng, state["rng"])
