"""Tables of rows in device memory, and how they are saved."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.checkpoint import BlockArray
from minding.engine.data.batch import RowLayout
from minding.engine.errors import CheckpointError
from minding.engine.process import runtime
from minding.engine.types import Array, StateDict

BLOCK_BYTES = 1 << 20
"""Approximate size of a block of a table, which is one file: many small files are slow, large ones repeat old rows."""


class DeviceTables:
    """The tables of a layout as parameters from which compiled updates gather.

    They are parameters and not call arguments, because an argument of a compiled loop is copied in every pass. On CPU,
    host and device share memory, so that rows are written through NumPy views (about 1 us) and compiled graphs see them
    at once; on other devices rows are scattered in place on the device and kept in host memory as well.
    """

    def __init__(self, layout: RowLayout, rows: int, spare: int = 0, replaced: DeviceTables | None = None) -> None:
        ms = runtime.load()
        self.layout = layout
        self.rows, self.spare = rows, spare
        self.origin: object = self if replaced is None else replaced.origin
        layout.check_memory(rows, spare)
        host = layout.empty(rows, spare)
        if replaced is not None:
            for new, old in zip(host, replaced.host, strict=True):
                new[: len(old)] = old
        # On CPU the parameter makes the only copy; a Tensor made of the array would be a second one.
        self.parameters = [
            ms.Parameter(runtime.to_device(table), name=f"rows.{i}", requires_grad=False)
            for i, table in enumerate(host)
        ]
        self._shared = runtime.device() == "CPU"
        self.host: tuple[Array, ...] = tuple(p.asnumpy() for p in self.parameters) if self._shared else host

    def write(self, start: int, block: Sequence[Array]) -> None:
        """Writes whole rows that begin at row `start`, one array ``(n, width)`` per table, without wrapping."""
        for host, new in zip(self.host, block, strict=True):
            host[start : start + len(new)] = new
        if not self._shared:
            self._scatter(start, block)

    def refill(self, values: Mapping[str, Array], where: str) -> None:
        """Writes all rows, one array ``(rows, *shape)`` per field, without an intermediate copy."""
        self.layout.write(self.host, slice(0, self.rows), values)
        self.layout.check_finite(self.host, where)
        if not self._shared:
            self._scatter(0, self.host)

    def put(self, table: int, places: Array, values: Array) -> None:
        """Writes values ``(n, width)`` to places of one table."""
        self.host[table][places] = values
        if not self._shared:
            self._put_on_device(table, places, values)

    def _scatter(self, start: int, block: Sequence[Array]) -> None:
        for table, new in enumerate(block):
            self._put_on_device(table, np.arange(start, start + len(new)), new)

    def _put_on_device(self, table: int, places: Array, values: Array) -> None:
        ms: Any = runtime.load()
        where = ms.Tensor(places.astype(np.int32))
        ms.ops.ScatterUpdate()(self.parameters[table], where, ms.Tensor(values))


class TablesPart:
    """A range of rows of tables that is written like separate tables."""

    spare = 0

    def __init__(self, tables: DeviceTables, start: int, rows: int) -> None:
        self._tables, self._start = tables, start
        self.host: tuple[Array, ...] = tuple(table[start : start + rows] for table in tables.host)

    def write(self, start: int, block: Sequence[Array]) -> None:
        self._tables.write(self._start + start, block)

    def put(self, table: int, places: Array, values: Array) -> None:
        self._tables.put(table, self._start + places, values)


def described(layout: RowLayout, capacity: int) -> StateDict:
    """The properties in which saved rows must agree with the buffer that they are loaded into."""
    kinds = layout.linked
    fields = {name: [list(f.shape), f.dtype, *["linked"] * (name in kinds)] for name, f in layout.fields.items()}
    return {"capacity": capacity, "fields": fields}


def check_fits(state: StateDict, layout: RowLayout, capacity: int) -> None:
    """Raises CheckpointError if the saved rows have other fields or another capacity."""
    here = described(layout, capacity)
    if any(state[name] != here[name] for name in here):
        raise CheckpointError(
            f"buffer: the checkpoint holds {state['capacity']} rows of {state['fields']}, "
            f"this run has {here['capacity']} rows of {here['fields']}"
        )


def in_blocks(table: Array, count: int, versions: Callable[[int], list[int]]) -> BlockArray:
    """The first `count` rows of a table in blocks; `versions` maps the rows per block to the version of each block."""
    rows = max(1, BLOCK_BYTES // max(1, table[0].nbytes))
    return BlockArray(table[:count], rows, versions(rows))


def new_origin() -> int:
    """The number from which versions are counted. It is random and not seeded: equal versions must mean equal rows,
    also in a run and in a resumed run that diverged from it."""
    return secrets.randbits(48)
