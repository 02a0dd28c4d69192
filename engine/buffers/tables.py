"""Tables of rows in device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minding.engine.data.batch import RowLayout
from minding.engine.process import runtime
from minding.engine.types import Array


class DeviceTables:
    """The tables of a layout as parameters that compiled updates gather from.

    Parameters, not call arguments: an argument of a compiled loop is copied in every pass. On CPU, host and device
    share memory, so that rows are written through NumPy views (about 1 us) and compiled graphs see them at once; on
    other devices they are scattered in place on the device and kept in host memory as well.

    Args:
      layout: the row's fields.
      rows: number of rows.
    """

    def __init__(self, layout: RowLayout, rows: int) -> None:
        ms = runtime.load()
        self.layout = layout
        self.rows = rows
        host = layout.empty(rows)
        self.parameters = [
            ms.Parameter(ms.Tensor(table), name=f"rows.{i}", requires_grad=False) for i, table in enumerate(host)
        ]
        self._shared = runtime.device() == "CPU"
        self.host: tuple[Array, ...] = tuple(p.asnumpy() for p in self.parameters) if self._shared else host

    def write(self, start: int, block: Sequence[Array]) -> None:
        """Writes whole rows from row `start` on, one array ``(n, width)`` per table; they must fit without wrapping."""
        for host, new in zip(self.host, block, strict=True):
            host[start : start + len(new)] = new
        if not self._shared:
            self._scatter(start, block)

    def _scatter(self, start: int, block: Sequence[Array]) -> None:
        ms: Any = runtime.load()
        for parameter, new in zip(self.parameters, block, strict=True):
            rows = ms.Tensor(np.arange(start, start + len(new), dtype=np.int32))
            ms.ops.ScatterUpdate()(parameter, rows, ms.Tensor(new))
