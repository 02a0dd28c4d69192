"""Replay buffers: rings of rows, sampled uniformly (Lin, 1992; Mnih et al., 2015, https://doi.org/10.1038/nature14236)
or by priority, as single rows or as sequences."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.base import BaseBuffer
from minding.engine.buffers.priorities import UNKNOWN, Priorities, Priority, checked_errors
from minding.engine.buffers.ring import Ring
from minding.engine.buffers.sequences import (
    PrioritizedWindows,
    SequenceBatch,
    Sequences,
    UniformWindows,
    sequences_from,
)
from minding.engine.data.batch import PRIORITY, Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


class RingBuffer(BaseBuffer):
    """A buffer of rows in a ring, the oldest overwritten first, with the random stream that samples them."""

    def __init__(self, ring: Ring, rng: np.random.Generator) -> None:
        self.ring, self.rng = ring, rng
        self.capacity = ring.capacity
        self.takes_order = ring.order is not None

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.ring.layout.fields

    def __len__(self) -> int:
        return len(self.ring)

    def store(self, transitions: Mapping[str, Array]) -> None:
        """Appends rows, one array ``(n, *shape)`` per field; see `Ring.push` for the order of rows."""
        self.ring.push(transitions)

    def state_dict(self) -> StateDict:
        return {"ring": self.ring.state_dict(), "rng": generator_state(self.rng)}

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        restore_generator(self.rng, state["rng"])


class ReplayBuffer(RingBuffer):
    """A ring of rows that samples single rows or sequences of rows, uniformly or by priority, with replacement.

    - Without `priority`, every stored row is equally likely to be learned from, in sequences too (`UniformWindows`).
    - With `priority`, rows or sequences are sampled in proportion to their priorities, with importance weights
      (`Priorities`, `PrioritizedWindows`). New rows bring their own priority (`priority_calculator`), or get the
      highest one so far; learning returns new ones (`update`).
    - With `sequences`, the buffer records the order of the rows of each episode. Rows of several environments may
      arrive mixed and in rollouts of any length, and rows such as reset rows may be missing.
    """

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, Field],
        *,
        priority: Priority | None = None,
        sequences: Sequences | None = None,
        images_once: bool = False,
        seed: int = 0,
    ) -> None:
        if sequences is not None:
            sequences.check(capacity, priority is not None)
        ring = Ring(capacity, RowLayout(fields, images_once=images_once), ordered=sequences is not None)
        super().__init__(ring, SeedStreams(seed).generator("buffer"))
        self.prioritized, self.sequences = priority is not None, sequences is not None
        self._sequences = sequences
        self._priorities: Priorities | None = None
        self._windows: UniformWindows | PrioritizedWindows | None = None
        if sequences is not None:
            assert self.ring.order is not None
            if priority is None:
                self._windows = UniformWindows(self.ring.order, sequences)
            else:
                self._windows = PrioritizedWindows(self.ring.order, capacity, sequences, priority)
                self._priorities = self._windows.priorities
        elif priority is not None:
            self._priorities = Priorities(capacity, priority)

    @property
    def ready(self) -> bool:
        return self._windows.ready if isinstance(self._windows, UniformWindows) else len(self) > 0

    @property
    def beta(self) -> float:
        """The exponent of the importance weights of the next minibatch; 0 without priorities."""
        return 0.0 if self._priorities is None else self._priorities.beta

    @property
    def minibatches(self) -> int | None:  # type: ignore[override]
        """The number of minibatches so far, with which `beta` rises; None without priorities."""
        return None if self._priorities is None else self._priorities.minibatches

    @minibatches.setter
    def minibatches(self, count: int | None) -> None:
        if self._priorities is not None and count is not None:
            self._priorities.minibatches = count

    def store(self, transitions: Mapping[str, Array]) -> None:
        """Appends rows, one array ``(n, *shape)`` per field, and optionally `PRIORITY` ``(n,)``. With sequences or
        `images_once` they also bring their order, see `Ring.push`."""
        places = self.ring.push(transitions)
        if isinstance(self._windows, PrioritizedWindows):
            self._windows.add(places, transitions["sequence"], transitions.get(PRIORITY, UNKNOWN))
        elif self._priorities is not None:
            given = np.asarray(transitions.get(PRIORITY, np.full(len(places), UNKNOWN)))
            self._priorities.begin(places, given)

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples the rows or sequences of `updates` minibatches; the rows are gathered on the device."""
        self.refuse_empty()
        if self._sequences is not None:
            return self._sample_sequences(self._sequences, (updates, batch_size))
        if self._priorities is None:
            return self.ring.batch(self.rng.integers(0, len(self), size=(updates, batch_size), dtype=np.int32))
        rows, weight = self._priorities.draw(updates, batch_size, self.rng)
        return self.ring.batch(rows.astype(np.int32), weight)

    def _sample_sequences(self, sequences: Sequences, shape: tuple[int, int]) -> SequenceBatch:
        if isinstance(self._windows, PrioritizedWindows):
            drawn, first, count, weight = self._windows.draw(*shape, self.rng)
            batch = sequences_from(self.ring, first, count, sequences.length, sequences.burn_in, weight)
            return dataclasses.replace(batch, window=drawn)
        assert self._windows is not None
        if not self.ready:
            raise ConfigError(
                "buffer of sequences: no whole episode is stored yet: collect more, or raise the capacity"
            )
        return sequences_from(self.ring, *self._windows.draw(shape, self.rng), sequences.burn_in)

    def update(self, batch: IndexedBatch, priorities: Array) -> None:
        """Sets the priorities of sampled rows or sequences; for one that occurs twice the last one counts. What was
        overwritten since is ignored.

        Args:
          priorities: float32, with the shape of the batch's index, at least 0: absolute errors of its rows. Of
            sequences, only rows to learn from count.
        """
        if isinstance(self._windows, PrioritizedWindows) and isinstance(batch, SequenceBatch):
            self._windows.update(batch, priorities)
        elif self._priorities is not None:
            places, given = batch.index.reshape(-1).astype(np.int64), checked_errors(priorities.reshape(-1))
            if batch.version is not None:
                there = self.ring.versions(places) == batch.version.reshape(-1)
                places, given = places[there], given[there]
            self._priorities.write(places, given)
        else:
            super().update(batch, priorities)

    def state_dict(self) -> StateDict:
        state = super().state_dict()
        if isinstance(self._windows, PrioritizedWindows):
            state.update(self._windows.state_dict(len(self)))
        elif self._priorities is not None:
            state.update(self._priorities.state_dict(np.arange(len(self))))
        return state

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if isinstance(self._windows, PrioritizedWindows):
            self._windows.load_state_dict(state)
        elif self._priorities is not None:
            self._priorities.load_state_dict(state, np.arange(len(self)), self.capacity)
