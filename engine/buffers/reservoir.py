"""A sample of all rows ever pushed (Vitter, 1985, https://doi.org/10.1145/3147.3165, algorithm R)."""

from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.base import BaseBuffer
from minding.engine.buffers.device_tables import StampedRows
from minding.engine.data.batch import Field, IndexedBatch
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


class ReservoirBuffer(BaseBuffer):
    """Holds every transition that was ever pushed with the same probability, whatever its age.

    Once the buffer is full, the t-th pushed row takes a random place with probability capacity / t, and is dropped
    otherwise. All held rows are sampled with the same probability, with replacement. It is for algorithms that learn
    from their whole past, such as the average strategy of Heinrich and Silver, 2016
    (https://arxiv.org/abs/1603.01121).
    """

    def __init__(self, capacity: int, fields: Mapping[str, Field], *, seed: int = 0) -> None:
        self.capacity = capacity
        self.rows = StampedRows(capacity, fields)
        streams = SeedStreams(seed)
        # A separate stream, so that sampling does not change the kept rows.
        self._rngs = {"drawn": streams.generator("buffer"), "kept": streams.generator("buffer.kept")}

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.rows.layout.fields

    def __len__(self) -> int:
        return min(self.rows.pushed, self.capacity)

    def store(self, transitions: Mapping[str, Array]) -> None:
        """Offers transitions, one array ``(n, *shape)`` per field; n may exceed the capacity."""
        block = self.rows.pack(transitions)
        number = self.rows.pushed + np.arange(len(block[0]))
        place = np.where(number < self.capacity, number, self._rngs["kept"].integers(0, number + 1))
        # If several rows take the same place, the last one stays.
        places, from_end = np.unique(place[::-1], return_index=True)
        held = places < self.capacity
        chosen = len(place) - 1 - from_end[held]
        self.rows.put(places[held], [new[chosen] for new in block], len(number))

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples the rows of `updates` minibatches of `batch_size`; the rows themselves are gathered on the
        device."""
        self.refuse_empty()
        index = self._rngs["drawn"].integers(0, len(self), size=(updates, batch_size), dtype=np.int32)
        return IndexedBatch(self.rows.layout, self.rows.tables, index)

    def state_dict(self) -> StateDict:
        """The rows in use (views, not copies, in blocks), the number of rows ever pushed, and the random streams."""
        return {**self.rows.state_dict(), "rng": {name: generator_state(rng) for name, rng in self._rngs.items()}}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores rows in place; CheckpointError as in `StampedRows.load_state_dict`."""
        self.rows.load_state_dict(state)
        for name, rng in self._rngs.items():
            restore_generator(rng, state["rng"][name])
