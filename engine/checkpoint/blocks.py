"""Large arrays in a state: written block by block, and only the blocks that have changed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minding.engine.errors import ShapeError
from minding.engine.types import Array


@dataclasses.dataclass(frozen=True, eq=False)
class BlockArray:
    """A leaf of a state whose rows are saved in blocks; a load returns it as one plain array.

    Attributes:
      array: ``(rows, ...)``; a view suffices: it is read while the checkpoint is written.
      block_rows: rows in a block; the last block may hold fewer.
      versions: one int per block. If a block's version is that of the same block of the same size in an earlier
        checkpoint, its rows must be the same too.

    Raises:
      ShapeError: if the array has no rows axis, or there is not one version for every block.
    """

    array: Array
    block_rows: int
    versions: Sequence[int]

    def __post_init__(self) -> None:
        if self.array.ndim < 1 or self.block_rows < 1:
            raise ShapeError(
                f"BlockArray: expected an axis of rows in blocks of at least 1, got shape {self.array.shape} in "
                f"blocks of {self.block_rows}"
            )
        blocks = -(-len(self.array) // self.block_rows)
        if len(self.versions) != blocks:
            raise ShapeError(
                f"BlockArray: {len(self.array)} rows in blocks of {self.block_rows} need {blocks} versions, "
                f"got {len(self.versions)}"
            )

    def __array__(self, dtype: Any = None) -> Array:
        return np.asarray(self.array, dtype)

    def blocks(self) -> Iterator[tuple[str, Array]]:
        """The blocks in order, each with a string that two blocks share only if their contents are equal."""
        rows = f"{self.array.dtype}{list(self.array.shape[1:])}"
        for number, version in enumerate(self.versions):
            start = number * self.block_rows
            block = self.array[start : start + self.block_rows]
            yield f"rows {start}-{start + len(block)} of {rows}, version {int(version)}", block
