"""Minibatches that are drawn from several buffers, in fixed shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minding.engine.buffers.ring import Ring
from minding.engine.buffers.tables import DeviceTables, TablesPart
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


class MixedBuffer:
    """Several buffers, each filled by a `data_pusher` of its own; of every minibatch each gives its share.

    The parts are rings of transitions in the same tables, so that one compiled update gathers from all of them. Within
    a part every stored row is equally likely, with replacement. The state of each part is saved by what pushes into it.

    Args:
      parts: (capacity, share of the minibatch) of each; the shares add up to 1.
      fields: name -> Field, usually ``policy.learn_mode.fields``.
      seed: of the sampling stream.

    Attributes:
      parts: the buffers, in order.
      capacity: that of all of them together.

    Raises:
      ConfigError: if a capacity is below 1, or the shares do not add up to 1.
    """

    def __init__(self, parts: Sequence[tuple[int, float]], fields: Mapping[str, Field], *, seed: int = 0) -> None:
        shares = [share for _, share in parts]
        if not parts or min(shares) <= 0 or abs(sum(shares) - 1.0) > 1e-9:
            raise ConfigError(f"mixed buffer: expected shares above 0 that add up to 1, got {shares}")
        if min(capacity for capacity, _ in parts) < 1:
            raise ConfigError(f"mixed buffer: expected capacities of at least 1 row, got {[c for c, _ in parts]}")
        self._layout = RowLayout(fields)
        self.capacity = sum(capacity for capacity, _ in parts)
        self._tables = DeviceTables(self._layout, self.capacity)
        rng = SeedStreams(seed).generator("buffer")
        starts = np.cumsum([0, *(capacity for capacity, _ in parts)]).tolist()
        self.parts = tuple(
            BufferPart(self._layout, self._tables, start, capacity, rng) for start, (capacity, _) in zip(starts, parts)
        )
        self._shares = shares

    @property
    def fields(self) -> Mapping[str, Field]:
        return self._layout.fields

    def __len__(self) -> int:
        """The fewest rows of a part that is not full, or those of all if every one is: learning that waits for that
        many rows waits for each part."""
        return min((len(part) for part in self.parts if len(part) < part.capacity), default=self.capacity)

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Draws the rows of `updates` minibatches of `batch_size`, with the rows of each part together.

        Raises:
          ConfigError: if a part is empty, or the shares of a minibatch are not whole rows.
        """
        counts = [round(share * batch_size) for share in self._shares]
        if any(abs(count - share * batch_size) > 1e-6 for count, share in zip(counts, self._shares)):
            raise ConfigError(f"mixed buffer: minibatches of {batch_size} rows cannot be divided by {self._shares}")
        index = [part.sample(updates, count).index for part, count in zip(self.parts, counts)]
        return IndexedBatch(self._layout, self._tables, np.concatenate(index, axis=1))


class BufferPart:
    """A buffer in some of the rows of tables; see `MixedBuffer`, which makes it.

    Args:
      layout, tables: those of all parts.
      start: its first row in the tables.
      capacity: number of transitions kept; the oldest is overwritten first.
      rng: draws for all parts; each saves it.
    """

    def __init__(
        self, layout: RowLayout, tables: DeviceTables, start: int, capacity: int, rng: np.random.Generator
    ) -> None:
        self.ring = Ring(capacity, layout, tables=TablesPart(tables, start, capacity))
        self.capacity = capacity
        self._tables, self._start, self._rng = tables, start, rng

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.ring.layout.fields

    def __len__(self) -> int:
        return len(self.ring)

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Appends transitions, one array ``(n, *shape)`` per field."""
        self.ring.push(transitions)

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Draws the rows of `updates` minibatches of `batch_size` from this part alone.

        Raises:
          ConfigError: if the part is empty.
        """
        if not len(self):
            raise ConfigError("sample from an empty buffer: push transitions into every part first")
        index = self._rng.integers(0, len(self), size=(updates, batch_size), dtype=np.int32)
        return IndexedBatch(self.ring.layout, self._tables, index + np.int32(self._start))

    def state_dict(self) -> StateDict:
        return {"ring": self.ring.state_dict(), "rng": generator_state(self._rng)}

    def load_state_dict(self, state: StateDict) -> None:
        self.ring.load_state_dict(state["ring"])
        restore_generator(self._rng, state["rng"])
