"""Recorded data as the rows that learners gather from."""

from collections.abc import Mapping

import numpy as np

from minding.engine.buffers.device_tables import DeviceTables
from minding.engine.data.batch import Field, IndexedBatch, Recorded, RowLayout
from minding.engine.data.dataset import Dataset
from minding.engine.data.holdout import DatasetPart
from minding.engine.errors import DataError
from minding.engine.types import Array

_BLOCK = 1 << 16
"""Number of rows that are converted at a time, so that a column is never in memory twice."""


class DatasetTables:
    """The columns of recorded data that a policy reads, on the device: written once, gathered by compiled updates.

    Images are stored once: `next_obs` is read from the following row, or at the end of an episode from a spare place.
    """

    def __init__(self, dataset: Dataset | DatasetPart, fields: Mapping[str, Field]) -> None:
        check_fields(dataset, fields)
        layout = RowLayout(fields, images_once=True)
        self._steps, self.digest = len(dataset), dataset.digest
        self._recorded = Recorded(self._steps, dataset.returns(), self._read)
        self._tables = DeviceTables(layout, self._steps, len(dataset.end) if layout.linked else 0)
        names = [column.name for column in layout.stored]
        for start in range(0, self._steps, _BLOCK):
            block = layout.pack(dataset.rows(names, np.arange(start, min(start + _BLOCK, self._steps))))
            layout.check_finite(block, f"recorded data, from step {start} on")
            self._tables.write(start, block)
        self._end = dataset.end
        self._successor: Array | None = None
        if layout.linked:
            self._successor = np.arange(1, self._steps + 1, dtype=np.int32)
            self._successor[dataset.end] = spare = self._steps + np.arange(len(dataset.end), dtype=np.int32)
            final = dataset.rows(layout.linked, dataset.end)
            for name in layout.linked:
                column = layout.columns[name]
                self._tables.put(column.table, spare, final[name].reshape(len(spare), column.stop))

    def _read(self, name: str, index: Array) -> Array:
        return self._tables.layout.read(self._tables.host, name, index)

    def __len__(self) -> int:
        return self._steps

    def batch(self, index: Array, length: int = 0) -> IndexedBatch:
        """Minibatches of the steps with these numbers, ``(K, B)``; with a length, of the sequences that end with them,
        see `steps_before`."""
        index, valid = steps_before(self._end, index, length) if length else (index, None)
        index = index.astype(np.int32)
        successor = None if self._successor is None else self._successor[index]
        return IndexedBatch(
            self._tables.layout, self._tables, index, successor=successor, valid=valid, recorded=self._recorded
        )


class MappedTables:
    """Recorded data that stay in their file: the minibatches of a call are gathered on the host, for the device.

    The same samples give the same rows as with `DatasetTables`, and so the same bits.
    """

    def __init__(self, dataset: Dataset | DatasetPart, fields: Mapping[str, Field], rows: int) -> None:
        check_fields(dataset, fields)
        self._dataset, self.digest = dataset, dataset.digest
        self._tables = DeviceTables(RowLayout(fields), rows)
        self._recorded = Recorded(len(dataset), dataset.returns(), self._read)

    def _read(self, name: str, index: Array) -> Array:
        return self._dataset.rows([name], index)[name]

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, index: Array, length: int = 0) -> IndexedBatch:
        """Minibatches as those of `DatasetTables`; they take the place of the earlier ones."""
        index, valid = steps_before(self._dataset.end, index, length) if length else (index, None)
        layout = self._tables.layout
        block = layout.pack(self._dataset.rows(layout.fields, index.reshape(-1)))
        self._tables.write(0, block)
        places = np.arange(index.size, dtype=np.int32).reshape(index.shape)
        return IndexedBatch(layout, self._tables, places, valid=valid, recorded=self._recorded)


def steps_before(end: Array, index: Array, length: int) -> tuple[Array, Array]:
    """Sequences of T steps of one episode each, that end with given steps.

    Args:
      end: int64 ``(E,)``, the number of the last step of each episode, increasing.
      index: the steps ``(K, B)``.

    Returns:
      Step numbers ``(K, T, B)``, in the order of time, and float32 ``(K, T, B)``: 0 for steps before the episode, whose
      places hold its first step, else 1.
    """
    last = index[:, None]
    first = np.concatenate([[0], end[:-1] + 1])[np.searchsorted(end, last)]
    places = last - np.arange(length - 1, -1, -1)[:, None]
    return np.maximum(places, first), (places >= first).astype(np.float32)


def check_fields(dataset: Dataset | DatasetPart, fields: Mapping[str, Field]) -> None:
    """Refuses data that lack a field that a policy learns from."""
    held = dataset.rows(fields, np.arange(min(1, len(dataset))))
    for name, field in fields.items():
        if name not in held and field.default is None:
            raise DataError(
                f"the recorded data have no field {name!r}, which the policy learns from: they have "
                f"{', '.join(dataset.names)}; an algorithm that needs more learns from what its own policy collects"
            )
        if name in held and held[name].shape[1:] != field.shape:
            raise DataError(
                f"field {name!r} has shape {held[name].shape[1:]} in the recorded data, and the policy learns from "
                f"{field.shape}: give the policy the configuration of the environment that was recorded"
            )
