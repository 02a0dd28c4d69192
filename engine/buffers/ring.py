"""The storage under every buffer: rows in device memory, oldest overwritten first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from minding.engine.batch import RowLayout
from minding.engine.buffers.tables import DeviceTables
from minding.engine.errors import CheckpointError, ConfigError
from minding.engine.types import Array, StateDict


class Ring:
    """A first-in-first-out ring of rows whose tables live in device memory (`DeviceTables`).

    Args:
      capacity: number of rows kept.
      layout: the row's fields.
    """

    def __init__(self, capacity: int, layout: RowLayout) -> None:
        if capacity < 1:
            raise ConfigError(f"buffer capacity: expected at least 1 row, got {capacity}")
        self.capacity = capacity
        self.layout = layout
        self.size = 0
        self.cursor = 0
        self.tables = DeviceTables(layout, capacity)

    def __len__(self) -> int:
        return self.size

    def push(self, values: Mapping[str, Array]) -> Array:
        """Appends rows, each field ``(n, *shape)``; returns the int64 row numbers written, in order.

        Raises:
          ShapeError: if a field is missing or has another shape.
          ConfigError: if there are more rows than the ring holds.
          NonFiniteError: if a value is NaN or infinite; nothing is written then.
        """
        block = self.layout.pack(values)
        self.layout.check_finite(block, "replay push")
        count = len(block[0])
        if count > self.capacity:
            raise ConfigError(f"push of {count} rows into a buffer of {self.capacity}: raise the capacity")
        head = min(count, self.capacity - self.cursor)
        self.tables.write(self.cursor, [new[:head] for new in block])
        if head < count:
            self.tables.write(0, [new[head:] for new in block])
        rows = (self.cursor + np.arange(count)) % self.capacity
        self.cursor = (self.cursor + count) % self.capacity
        self.size = min(self.size + count, self.capacity)
        return rows

    def read(self, name: str, rows: Array) -> Array:
        """A field of the given rows, as a copy."""
        return self.layout.read(self.tables.host, name, rows).copy()

    def state_dict(self) -> StateDict:
        """Rows in use (views, not copies), cursor and size."""
        return {
            "cursor": self.cursor,
            "size": self.size,
            "capacity": self.capacity,
            "fields": {name: [list(f.shape), f.dtype] for name, f in self.layout.fields.items()},
            "tables": {str(i): table[: self.size] for i, table in enumerate(self.tables.host)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores rows in place.

        Raises:
          CheckpointError: if the saved rows have other fields or another capacity.
        """
        fields = {name: [list(f.shape), f.dtype] for name, f in self.layout.fields.items()}
        if state["fields"] != fields or state["capacity"] != self.capacity:
            raise CheckpointError(
                f"buffer: the checkpoint holds {state['capacity']} rows of {state['fields']}, "
                f"this run has {self.capacity} rows of {fields}"
            )
        self.size, self.cursor = int(state["size"]), int(state["cursor"])
        self.tables.write(0, [state["tables"][str(i)] for i in range(len(self.tables.host))])
