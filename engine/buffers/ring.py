"""The storage of most buffers: rows in device memory, the oldest overwritten first."""

from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.device_tables import DeviceTables, TablesPart, check_fits, described, in_blocks, new_origin
from minding.engine.buffers.row_order import RowOrder, Successors
from minding.engine.data.batch import IndexedBatch, RowLayout
from minding.engine.errors import ConfigError, ShapeError
from minding.engine.types import Array, StateDict

ORDER = ("sequence", "begun", "ended", "steps")
"""Further arrays that an ordered ring takes with the fields of new rows."""
FEW = 64
"""Minimum number of spare places at the start."""


class Ring:
    """A first-in-first-out ring of rows whose tables live in device memory (`DeviceTables`).

    If the layout stores images once, an observation that no row holds is kept at a spare place after the ring: the
    final one of an episode, and the one after the newest row of an environment. Spare places are added as needed.
    """

    def __init__(
        self, capacity: int, layout: RowLayout, *, ordered: bool = False, tables: TablesPart | None = None
    ) -> None:
        if capacity < 1:
            raise ConfigError(f"buffer capacity: expected at least 1 row, got {capacity}")
        self.capacity = capacity
        self.layout = layout
        spare = max(FEW, capacity // 16) if layout.linked else 0
        # First, because they say whether there is enough memory.
        self.tables: DeviceTables | TablesPart = DeviceTables(layout, capacity, spare) if tables is None else tables
        self.order = RowOrder(capacity) if ordered or layout.linked else None
        self._successors: Successors | None = None
        if layout.linked and self.order is not None:
            self._successors = Successors(self.order, capacity)
            self._successors.grow(spare)
        self._pushed = 0
        self._origin = new_origin()

    def __len__(self) -> int:
        return min(self._pushed, self.capacity)

    @property
    def cursor(self) -> int:
        """The place that will be written next."""
        return self._pushed % self.capacity

    def push(self, values: Mapping[str, Array]) -> Array:
        """Appends rows, each field ``(n, *shape)``; returns the int64 places written, in order.

        An ordered ring also takes `ORDER`, ``(n,)`` each: `sequence` (int, the environment of the row; its rows arrive
        in the order of time), `begun` (bool, the row does not continue the previous row of its environment), `ended`
        (bool, the row is the last of its episode) and `steps` (int, number of steps to the successor; 1 by default).
        """
        block = self.layout.pack(values)
        self.layout.check_finite(block, "replay push")
        count = len(block[0])
        if count > self.capacity:
            raise ConfigError(f"push of {count} rows into a buffer of {self.capacity}: raise the capacity")
        if self.order is not None and count:
            self._link(self.order, values, count)
        start = self.cursor
        head = min(count, self.capacity - start)
        self.tables.write(start, [new[:head] for new in block])
        if head < count:
            self.tables.write(0, [new[head:] for new in block])
        self._pushed += count
        return (start + np.arange(count)) % self.capacity

    def _link(self, order: RowOrder, values: Mapping[str, Array], count: int) -> None:
        """Records the order of new rows, and stores the observations that no row holds."""
        missing = [name for name in (*ORDER, *self.layout.linked) if name not in values and name != "steps"]
        if missing:
            raise ShapeError(
                f"the rows lack {', '.join(missing)}, which link each row to its successor; "
                f"got {', '.join(sorted(values))}: "
                "push them with data_pusher"
            )
        columns = [np.asarray(values.get(name, np.ones(count, np.int64))) for name in ORDER]
        if any(column.shape != (count,) for column in columns):
            shapes = ", ".join(f"{name} {c.shape}" for name, c in zip(ORDER, columns))
            raise ShapeError(f"expected one number per row, ({count},), got {shapes}")
        rows = self._pushed + np.arange(count)
        if self._successors is not None:
            self._successors.release(rows[rows >= self.capacity] - self.capacity)
        order.add(*columns[:3])
        if self._successors is not None:
            self._keep_successors(self._successors, rows, columns[3], values)

    def _keep_successors(self, successors: Successors, rows: Array, steps: Array, values: Mapping[str, Array]) -> None:
        missing, number, first = successors.add(rows, steps)
        wanted = len(first)
        if wanted > successors.num_free:
            successors.grow(2 * (successors.spare + wanted))
            assert isinstance(self.tables, DeviceTables)
            self.tables = DeviceTables(self.layout, self.capacity, successors.spare, self.tables)
        places = successors.occupy(rows[missing], number)
        for name in self.layout.linked:
            column = self.layout.columns[name]
            self.tables.put(column.table, places, values[name][first].reshape(len(first), column.stop))

    def batch(self, index: Array, weight: Array | None = None) -> IndexedBatch:
        """The batch of the rows at these places, int32."""
        successor = None if self._successors is None else self._successors.place[index]
        version = None if weight is None else self.versions(index)
        return IndexedBatch(self.layout, self.tables, index, weight, successor=successor, version=version)

    def versions(self, places: Array) -> Array:
        """When the rows at these places were written: the number of rows pushed before, int64."""
        newest = self._pushed - 1
        versions: Array = newest - (newest - places.astype(np.int64)) % self.capacity
        return versions

    def read(self, name: str, rows: Array) -> Array:
        """A field of the rows at the given places, as a copy."""
        if self._successors is not None and self.layout.columns[name].linked:
            rows = self._successors.place[rows]
        return self.layout.read(self.tables.host, name, rows).copy()

    def state_dict(self) -> StateDict:
        """The rows in use (views, not copies, in blocks) and the number of rows ever pushed."""
        state: StateDict = {} if self.order is None else {"links": self.order.state_dict()}
        if self._successors is not None:
            used = self._successors.used()
            state["successors"] = self._successors.state_dict(len(self))
            state["spare"] = {str(table): self.tables.host[table][used] for table in self._looked_up()}
        return {
            **state,
            "pushed": self._pushed,
            **described(self.layout, self.capacity),
            "tables": {str(i): in_blocks(table, len(self), self._versions) for i, table in enumerate(self.tables.host)},
        }

    def load_state_dict(self, state: StateDict) -> None:
        check_fits(state, self.layout, self.capacity)
        if self.order is not None:
            self.order.load_state_dict(state["links"])
        if self._successors is not None:
            self._successors.load_state_dict(state["successors"])
            if self._successors.spare != self.tables.spare:
                self.tables = DeviceTables(self.layout, self.capacity, self._successors.spare)
            for table in self._looked_up():
                self.tables.put(table, self._successors.used(), np.asarray(state["spare"][str(table)]))
        self.tables.write(0, [np.asarray(state["tables"][str(i)]) for i in range(len(self.tables.host))])
        self._pushed = int(state["pushed"])
        self._origin = new_origin()

    def _looked_up(self) -> list[int]:
        """The tables in which successors are looked up."""
        return [self.layout.columns[name].table for name in self.layout.linked]

    def _versions(self, block_rows: int) -> list[int]:
        """For each block, the number of rows pushed up to its last change, counted from the origin. It follows from the
        number of pushed rows, so that a push need not keep it."""
        first = np.arange(0, len(self), block_rows)
        end = np.minimum(first + block_rows, len(self))
        lap = self._pushed - self.cursor
        last = np.where(first < self.cursor, lap + np.minimum(end, self.cursor), lap - self.capacity + end)
        return [self._origin + int(pushed) for pushed in last]
