"""The storage under every buffer: rows in device memory, oldest overwritten first."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.tables import DeviceTables
from minding.engine.checkpoint import BlockArray
from minding.engine.data.batch import RowLayout
from minding.engine.errors import CheckpointError, ConfigError
from minding.engine.types import Array, StateDict

BLOCK_BYTES = 1 << 20
"""About this much of a table is one file of a checkpoint: small ones cost by number, large ones by unchanged rows."""


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
        self.tables = DeviceTables(layout, capacity)
        self._pushed = 0
        self._origin = _new_origin()

    def __len__(self) -> int:
        return min(self._pushed, self.capacity)

    @property
    def cursor(self) -> int:
        """The row that will be written next."""
        return self._pushed % self.capacity

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
        start = self.cursor
        head = min(count, self.capacity - start)
        self.tables.write(start, [new[:head] for new in block])
        if head < count:
            self.tables.write(0, [new[head:] for new in block])
        self._pushed += count
        return (start + np.arange(count)) % self.capacity

    def read(self, name: str, rows: Array) -> Array:
        """A field of the given rows, as a copy."""
        return self.layout.read(self.tables.host, name, rows).copy()

    def state_dict(self) -> StateDict:
        """Rows in use (views, not copies, in blocks) and how many were ever pushed."""
        return {
            "pushed": self._pushed,
            "capacity": self.capacity,
            "fields": self._fields(),
            "tables": {str(i): self._in_blocks(table) for i, table in enumerate(self.tables.host)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores rows in place.

        Raises:
          CheckpointError: if the saved rows have other fields or another capacity.
        """
        if state["fields"] != self._fields() or state["capacity"] != self.capacity:
            raise CheckpointError(
                f"buffer: the checkpoint holds {state['capacity']} rows of {state['fields']}, "
                f"this run has {self.capacity} rows of {self._fields()}"
            )
        self.tables.write(0, [np.asarray(state["tables"][str(i)]) for i in range(len(self.tables.host))])
        self._pushed = int(state["pushed"])
        self._origin = _new_origin()

    def _fields(self) -> StateDict:
        return {name: [list(f.shape), f.dtype] for name, f in self.layout.fields.items()}

    def _in_blocks(self, table: Array) -> BlockArray:
        rows = max(1, BLOCK_BYTES // max(1, table[0].nbytes))
        return BlockArray(table[: len(self)], rows, self._versions(rows))

    def _versions(self, block_rows: int) -> list[int]:
        """For each block, how many rows had been pushed when it was last written to, counted from the origin.

        It follows from the number of pushed rows, so that a push need not keep it.
        """
        first = np.arange(0, len(self), block_rows)
        end = np.minimum(first + block_rows, len(self))
        lap = self._pushed - self.cursor
        last = np.where(first < self.cursor, lap + np.minimum(end, self.cursor), lap - self.capacity + end)
        return [self._origin + int(pushed) for pushed in last]


def _new_origin() -> int:
    """Where versions are counted from. Random, not seeded: equal versions must mean equal rows, also between a run
    and one that was resumed from it and diverged."""
    return secrets.randbits(48)
