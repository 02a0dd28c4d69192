"""Takes rows apart inside a compiled update."""

from __future__ import annotations

from collections.abc import Sequence

from minding.engine.batch import RowLayout
from minding.engine.runtime import ms, nn, ops


class Rows(nn.Cell):
    """Gathers rows of the tables and returns the named fields, in the order asked for.

    Args:
      layout: where each field lives.
      names: the fields to return.
    """

    def __init__(self, layout: RowLayout, names: Sequence[str]) -> None:
        super().__init__()
        columns = [layout.columns[name] for name in names]
        self.num_fields = len(columns)
        self.num_tables = layout.num_tables
        self.table = [c.table for c in columns]
        self.start = [c.start for c in columns]
        self.stop = [c.stop for c in columns]
        self.shape = [tuple(c.shape) for c in columns]
        self.integer = [c.dtype == "int32" for c in columns]

    def construct(self, index, tables):
        """Args: index int32 (B,), tables: the layout's tables. Returns fields, each (B, *shape)."""
        gathered = []
        for k in range(self.num_tables):
            gathered.append(ops.gather(tables[k], index, 0))
        fields = []
        for k in range(self.num_fields):
            rows = gathered[self.table[k]]
            if len(self.shape[k]) == 0:
                value = rows[:, self.start[k]]
            else:
                value = rows[:, self.start[k] : self.stop[k]]
                if len(self.shape[k]) > 1:
                    value = value.reshape((-1, *self.shape[k]))
            if self.integer[k]:
                value = ops.cast(value, ms.int32)
            fields.append(value)
        return fields
