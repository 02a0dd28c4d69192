"""A state taken apart into JSON, arrays and blocks of large arrays, and put together again.

Large arrays are written block by block, and only the blocks that have changed.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from minding.engine.errors import CheckpointError, ShapeError, UnsavableError
from minding.engine.types import SAVABLE, Array, is_savable


@dataclasses.dataclass(frozen=True, eq=False)
class BlockArray:
    """A leaf of a state whose rows are saved in blocks; a load returns it as one plain array.

    Attributes:
      array: ``(rows, ...)``; a view suffices: it is read while the checkpoint is written.
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


_ARRAY, _BLOCKS = "$array", "$blocks"


@dataclasses.dataclass(frozen=True)
class Parts:
    """A state taken apart."""

    tree: Any
    arrays: dict[str, Array]
    large: dict[str, BlockArray]

    def blocks(self) -> Iterator[tuple[str, Array]]:
        """All blocks in the order of their numbers, each with a string that identifies its contents."""
        for where, leaf in self.large.items():
            for identity, block in leaf.blocks():
                yield f"{where} {identity}", block


def split(state: Any) -> Parts:
    parts = Parts(None, {}, {})
    return dataclasses.replace(parts, tree=_split(state, "", parts))


def _split(node: Any, where: str, parts: Parts) -> Any:
    if isinstance(node, Mapping):
        for key in node:
            # JSON turns other keys into strings.
            if not isinstance(key, str) or key in (_ARRAY, _BLOCKS):
                raise UnsavableError(_keys(where), f"the key {key!r} cannot be saved; use another text")
        return {key: _split(child, f"{where}/{key}", parts) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_split(child, f"{where}/{i}", parts) for i, child in enumerate(node)]
    if isinstance(node, np.ndarray | BlockArray):
        return _split_array(node, where, parts)
    if isinstance(node, np.generic):
        return node.item()
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise _unsavable(where, type(node).__name__)


def _split_array(leaf: Array | BlockArray, where: str, parts: Parts) -> Any:
    array = leaf.array if isinstance(leaf, BlockArray) else leaf
    if not is_savable(array.dtype):
        raise _unsavable(where, f"{array.dtype} array")
    if where in parts.arrays or where in parts.large:
        raise CheckpointError(f"state: two arrays are named {where!r}; use keys without '/'")
    if isinstance(leaf, BlockArray):
        first = sum(len(each.versions) for each in parts.large.values())
        parts.large[where] = leaf
        numbers = [first, first + len(leaf.versions)]
        return {_BLOCKS: numbers, "rows": leaf.block_rows, "shape": list(array.shape), "dtype": array.dtype.name}
    parts.arrays[where] = np.ascontiguousarray(array)
    # `ascontiguousarray` turns a 0-d array into a row, so the shape is kept separately.
    return {_ARRAY: where, "shape": list(array.shape)}


def _unsavable(where: str, what: str) -> UnsavableError:
    return UnsavableError(
        _keys(where), f"a {what} cannot be saved; use arrays of numbers, numbers, strings, lists, dicts"
    )


def _keys(where: str) -> tuple[str, ...]:
    return tuple(where.split("/")[1:])


def join(
    node: Any, arrays: dict[str, Array], fill: Callable[[int, Array], None], stored: int, *, copy: bool = True
) -> Any:
    """Puts a state together again; `stored`: bytes of all blocks, as a state that claims more is refused."""
    return _Joiner(arrays, fill, stored, copy).join(node)


class _Joiner:
    """Uses every array and every block once, so that no tree can ask for more memory than the files have."""

    def __init__(self, arrays: dict[str, Array], fill: Callable[[int, Array], None], stored: int, copy: bool) -> None:
        self._arrays, self._fill, self._left = arrays, fill, stored
        self._copy = copy
        self._next_block = 0

    def join(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.join(child) for child in node]
        if not isinstance(node, dict):
            return node
        if _ARRAY in node:
            array = self._arrays.pop(node[_ARRAY])
            shaped = array.reshape(node["shape"])
            # Arrays of a file are not writable.
            return np.array(shaped) if self._copy else shaped
        if _BLOCKS in node:
            return self._join_blocks(node)
        return {key: self.join(child) for key, child in node.items()}

    def _join_blocks(self, node: dict[str, Any]) -> Array:
        shape, step, (first, end) = [int(n) for n in node["shape"]], int(node["rows"]), node[_BLOCKS]
        if node["dtype"] not in SAVABLE or min(shape) < 0 or step < 1:
            raise ValueError(f"no array of {node['dtype']!r} and shape {shape} in blocks of {step} was saved")
        size = math.prod(shape) * np.dtype(node["dtype"]).itemsize
        self._left -= size
        if (first, end - first) != (self._next_block, -(-shape[0] // step)) or self._left < 0:
            raise ValueError(f"{size:,} bytes in the blocks {first} to {end} differ from the saved bytes")
        self._next_block = end
        array = np.zeros(shape, node["dtype"])
        for place, number in enumerate(range(first, end)):
            self._fill(number, array[place * step : (place + 1) * step])
        return array


def not_finite(state: Any, where: str) -> str | None:
    """Path of the first number, or array with one, that is NaN or infinite; None if there is none."""
    if isinstance(state, Mapping | list | tuple):
        items = state.items() if isinstance(state, Mapping) else enumerate(state)
        return next((path for key, child in items if (path := not_finite(child, f"{where}/{key}"))), None)
    if isinstance(state, float) or (isinstance(state, np.ndarray) and state.dtype.kind == "f"):
        return None if np.isfinite(state).all() else where
    return None
