"""Splitting rows into fields inside a compiled update."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.data.batch import OBSERVATIONS, Column, RowLayout
from minding.engine.process.runtime import ms, nn, ops
from minding.policies.kernels import kernel, usable
from minding.policies.ops import lean


class Rows(nn.Cell):
    """Gathers rows of the tables and splits them into fields.

    Args:
      layout: the places of the fields in the tables.
      names: names of the fields to return; a tree of fields (an observation with several leaves) has one name.
    """

    def __init__(self, layout: RowLayout, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        trees = [layout.tree(name) for name in names]
        columns = [column for tree in trees for column in tree]
        stops = list(itertools.accumulate(len(tree) for tree in trees))
        self.starts, self.stops = [0, *stops[:-1]], stops
        # Encoders take a tuple of leaves even if the observation has only one.
        self.is_leaf = [name in OBSERVATIONS and len(tree) == 1 for name, tree in zip(names, trees, strict=True)]
        self.is_plain = [name not in OBSERVATIONS for name in names]
        self.table = [c.table for c in columns]
        self.linked = [c.linked for c in columns]
        self.shape = [tuple(c.shape) for c in columns]
        numbers = [c for c in columns if c.table == 0]
        # The index of each field among the fields of table 0.
        self.place = [numbers.index(c) if c.table == 0 else -1 for c in columns]
        self.numbers = (_FusedFields if usable() and len(numbers) > 1 else _Fields)(numbers)

    def construct(self, index, successor, tables):
        """Returns the fields in the order of `names`, each (B, *shape), and `OBSERVATIONS` as tuples of leaves.

        Args:
          index: indices of the rows, int32 (B,) or of any shape with B entries.
          successor: indices of the rows that hold the `linked` fields, shaped like `index`.
          tables: the tables of the layout.
        """
        if index.ndim > 1:
            index, successor = index.reshape((-1,)), successor.reshape((-1,))
        numbers = self.numbers(index, lean.item(tables, 0))
        columns: Any = ()
        for k in range(len(self.place)):
            if self.place[k] >= 0:
                columns = (*columns, lean.item(numbers, self.place[k]))
            else:
                image = ops.gather(tables[self.table[k]], successor if self.linked[k] else index, 0)
                columns = (*columns, image.reshape((-1, *self.shape[k])))
        fields: Any = ()
        for k in range(len(self.names)):
            if self.is_plain[k]:
                fields = (*fields, lean.item(columns, self.starts[k]))
            elif self.is_leaf[k]:
                fields = (*fields, (lean.item(columns, self.starts[k]),))
            else:
                fields = (*fields, columns[self.starts[k] : self.stops[k]])
        return fields


class _Fields(nn.Cell):
    """Fields of one table of numbers."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.count = len(columns)
        self.start = [c.start for c in columns]
        self.stop = [c.stop for c in columns]
        self.shape = [tuple(c.shape) for c in columns]
        self.integer = [c.dtype == "int32" for c in columns]

    def construct(self, index, table):
        rows = ops.gather(table, index, 0)
        fields = []
        for k in range(self.count):
            if len(self.shape[k]) == 0:
                value = rows[:, self.start[k]]
            else:
                # Slicing images takes as long as a convolution.
                whole = self.stop[k] - self.start[k] == rows.shape[1]
                value = rows if whole else rows[:, self.start[k] : self.stop[k]]
                if len(self.shape[k]) > 1:
                    value = value.reshape((-1, *self.shape[k]))
            if self.integer[k]:
                value = ops.cast(value, ms.int32)
            fields.append(value)
        return tuple(fields)


class _FusedFields(nn.Cell):
    """`_Fields` in one kernel, for two fields or more."""

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
        self.start = ms.Tensor(np.array([c.start for c in columns], np.int32))
        self.take_fields = _fused_take_fields(tuple((tuple(c.shape), c.dtype) for c in columns))

    def construct(self, index, table):
        return self.take_fields(index, self.start, table)


@functools.cache
def _fused_take_fields(fields: tuple[tuple[tuple[int, ...], str], ...]) -> Any:
    """The primitive ``(index, start of each field in a row, table) -> fields``; `fields`: shape and dtype of each."""
    dtypes = tuple(ms.int32 if dtype == "int32" else ms.float32 for _, dtype in fields)
    return kernel(
        "take_fields",
        lambda index, start, table: tuple((index[0], *shape) for shape, _ in fields),
        lambda index, start, table: dtypes,
    )
