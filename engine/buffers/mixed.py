"""Minibatches that are sampled from several buffers in fixed shares."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from minding.engine.buffers.base import BaseBuffer
from minding.engine.buffers.device_tables import DeviceTables, TablesPart
from minding.engine.buffers.replay import RingBuffer
from minding.engine.buffers.ring import Ring
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError
from minding.engine.seeding import SeedStreams
from minding.engine.types import Array


class MixedBuffer(BaseBuffer):
    """Several buffers, each with its own `data_pusher`; each provides a fixed share of every minibatch.

    The parts are rings of transitions in the same tables, so that one compiled update gathers from all of them. Within
    a part every stored row is equally likely, with replacement. The middleware that pushes into a part saves its state.
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
        """The smallest number of rows in a part that is not full, or the number of all rows if every part is full:
        learning that waits for a number of rows so waits for each part."""
        return min((len(part) for part in self.parts if len(part) < part.capacity), default=self.capacity)

    def watch(self, watcher: Callable[[Mapping[str, Array]], object]) -> None:
        for part in self.parts:
            part.watch(watcher)

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples the rows of `updates` minibatches of `batch_size`; the rows of each part stand together."""
        counts = [round(share * batch_size) for share in self._shares]
        if any(abs(count - share * batch_size) > 1e-6 for count, share in zip(counts, self._shares)):
            raise ConfigError(f"mixed buffer: minibatches of {batch_size} rows cannot be divided by {self._shares}")
        index = [part.sample(updates, count).index for part, count in zip(self.parts, counts)]
        return IndexedBatch(self._layout, self._tables, np.concatenate(index, axis=1))


class BufferPart(RingBuffer):
    """A buffer in a range of rows of tables; see `MixedBuffer`, which creates it."""

    def __init__(
        self, layout: RowLayout, tables: DeviceTables, start: int, capacity: int, rng: np.random.Generator
    ) -> None:
        super().__init__(Ring(capacity, layout, tables=TablesPart(tables, start, capacity)), rng)
        self._tables, self._start = tables, start

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples the rows of `updates` minibatches of `batch_size` from this part alone."""
        self.refuse_empty()
        index = self.rng.integers(0, len(self), size=(updates, batch_size), dtype=np.int32)
        return IndexedBatch(self.ring.layout, self._tables, index + np.int32(self._start))
