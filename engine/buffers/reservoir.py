"""A sample of all rows ever pushed (Vitter, 1985, https://doi.org/10.1145/3147.3165, algorithm R)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minding.engine.buffers import saved
from minding.engine.buffers.tables import DeviceTables
from minding.engine.data.batch import Field, IndexedBatch, RowLayout
from minding.engine.errors import ConfigError
from minding.engine.seeding import SeedStreams, generator_state, restore_generator
from minding.engine.types import Array, StateDict


class ReservoirBuffer:
    """Holds every transition that was ever pushed with the same probability, whatever its age.

    Once the buffer is full, the t-th pushed row takes a random place with probability capacity / t, and is dropped
    otherwise. All held rows are sampled with the same probability, with replacement. It is for algorithms that learn
    from their whole past, such as the average strategy of Heinrich and Silver, 2016
    (https://arxiv.org/abs/1603.01121).

    Args:
      capacity: number of transitions kept.
      fields: name -> Field, usually ``policy.learn_mode.fields``.
      seed: seed of the streams that choose the kept and the sampled rows.

    Raises:
      ConfigError: for a capacity below 1.
    """

    def __init__(self, capacity: int, fields: Mapping[str, Field], *, seed: int = 0) -> None:
        if capacity < 1:
            raise ConfigError(f"buffer capacity: expected at least 1 row, got {capacity}")
        self.capacity = capacity
        self.layout = RowLayout(fields)
        self.tables = DeviceTables(self.layout, capacity)
        streams = SeedStreams(seed)
        # A separate stream, so that sampling does not change the kept rows.
        self._rngs = {"drawn": streams.generator("buffer"), "kept": streams.generator("buffer.kept")}
        self._pushed = 0
        # For each place, the number of rows pushed when it was written.
        self._written = np.zeros(capacity, np.int64)
        self._origin = saved.new_origin()

    @property
    def fields(self) -> Mapping[str, Field]:
        return self.layout.fields

    def __len__(self) -> int:
        return min(self._pushed, self.capacity)

    def push(self, transitions: Mapping[str, Array]) -> None:
        """Offers transitions, one array ``(n, *shape)`` per field; n may exceed the capacity.

        Raises:
          ShapeError: if a field is missing or has another shape.
          NonFiniteError: if a value is NaN or infinite; nothing is written then.
        """
        block = self.layout.pack(transitions)
        self.layout.check_finite(block, "replay push")
        number = self._pushed + np.arange(len(block[0]))
        place = np.where(number < self.capacity, number, self._rngs["kept"].integers(0, number + 1))
        # If several rows take the same place, the last one stays.
        places, from_end = np.unique(place[::-1], return_index=True)
        held = places < self.capacity
        places, rows = places[held], len(place) - 1 - from_end[held]
        for table, new in enumerate(block):
            self.tables.put(table, places, new[rows])
        self._pushed += len(number)
        self._written[places] = self._pushed

    def sample(self, updates: int, batch_size: int) -> IndexedBatch:
        """Samples the rows of `updates` minibatches of `batch_size`; the rows themselves are gathered on the device.

        Raises:
          ConfigError: if the buffer is empty. Check `len(buffer)` first.
        """
        if not len(self):
            raise ConfigError("sample from an empty buffer: push transitions first (data_pusher), or wait for warm-up")
        index = self._rngs["drawn"].integers(0, len(self), size=(updates, batch_size), dtype=np.int32)
        return IndexedBatch(self.layout, self.tables, index)

    def read(self, name: str, rows: Array) -> Array:
        """A field of the rows at the given places, as a copy."""
        return self.layout.read(self.tables.host, name, rows).copy()

    def state_dict(self) -> StateDict:
        """The rows in use (views, not copies, in blocks), the number of rows ever pushed, and the random streams."""
        return {
            **saved.described(self.layout, self.capacity),
            "pushed": self._pushed,
            "tables": {
                str(i): saved.in_blocks(table, len(self), self._versions) for i, table in enumerate(self.tables.host)
            },
            "rng": {name: generator_state(rng) for name, rng in self._rngs.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores rows in place.

        Raises:
          CheckpointError: if the saved rows have other fields or another capacity.
        """
        saved.check_fits(state, self.layout, self.capacity)
        self.tables.write(0, [np.asarray(state["tables"][str(i)]) for i in range(len(self.tables.host))])
        self._pushed = int(state["pushed"])
        self._written[:] = 0
        self._origin = saved.new_origin()
        for name, rng in self._rngs.items():
            restore_generator(rng, state["rng"][name])

    def _versions(self, block_rows: int) -> list[int]:
        """For each block, the number of rows pushed up to its last change, counted from the origin."""
        if not len(self):
            return []
        last = np.maximum.reduceat(self._written[: len(self)], np.arange(0, len(self), block_rows))
        return [self._origin + int(pushed) for pushed in last]
