"""A state taken apart into JSON, arrays and blocks of large arrays, and put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from minding.engine.checkpoint.blocks import BlockArray
from minding.engine.errors import CheckpointError
from minding.engine.types import Array

_ARRAY, _BLOCKS = "$array", "$blocks"
_DTYPES = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64) if (kind, bits) != ("float", 8)
) | {"bool"}


@dataclasses.dataclass(frozen=True)
class Parts:
    """A state taken apart.

    Attributes:
      tree: JSON values; each array is replaced by a dict that names it.
      arrays: path in the state -> array.
      large: path in the state -> array that is saved in blocks.
    """

    tree: Any
    arrays: dict[str, Array]
    large: dict[str, BlockArray]

    def blocks(self) -> Iterator[tuple[str, Array]]:
        """All blocks in the order of their numbers; each with a text that says what it holds."""
        for where, leaf in self.large.items():
            for identity, block in leaf.blocks():
                yield f"{where} {identity}", block


def split(state: Any) -> Parts:
    """Takes a state apart.

    Raises:
      CheckpointError: if a leaf is neither an array of numbers nor a JSON value.
    """
    parts = Parts(None, {}, {})
    return dataclasses.replace(parts, tree=_split(state, "", parts))


def _split(node: Any, where: str, parts: Parts) -> Any:
    if isinstance(node, Mapping):
        for key in node:
            # JSON turns other keys into texts.
            if not isinstance(key, str) or key in (_ARRAY, _BLOCKS):
                raise CheckpointError(f"state{where}: the key {key!r} cannot be saved; use another text")
        return {key: _split(child, f"{where}/{key}", parts) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_split(child, f"{where}/{i}", parts) for i, child in enumerate(node)]
    if isinstance(node, np.ndarray | BlockArray):
        return _split_array(node, where, parts)
    if isinstance(node, np.generic):
        return node.item()
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise _unsaveable(where, type(node).__name__)


def _split_array(leaf: Array | BlockArray, where: str, parts: Parts) -> Any:
    array = leaf.array if isinstance(leaf, BlockArray) else leaf
    if array.dtype.name not in _DTYPES:
        raise _unsaveable(where, f"{array.dtype} array")
    if where in parts.arrays or where in parts.large:
        raise CheckpointError(f"state: two arrays are named {where!r}; use keys without '/'")
    if isinstance(leaf, BlockArray):
        first = sum(len(each.versions) for each in parts.large.values())
        parts.large[where] = leaf
        numbers = [first, first + len(leaf.versions)]
        return {_BLOCKS: numbers, "rows": leaf.block_rows, "shape": list(array.shape), "dtype": array.dtype.name}
    parts.arrays[where] = np.ascontiguousarray(array)
    # Making it contiguous turns a 0-d array into a row: the shape is kept beside it.
    return {_ARRAY: where, "shape": list(array.shape)}


def _unsaveable(where: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"state{where}: a {what} cannot be saved; use arrays of numbers, numbers, strings, lists, dicts"
    )


def join(node: Any, arrays: Mapping[str, Array], fill: Callable[[int, Array], None]) -> Any:
    """Puts a state together again.

    Args:
      node: what `split` made the tree of.
      arrays: path in the state -> array.
      fill: is called with the number of each block and the rows it is to be written to.
    """
    if isinstance(node, list):
        return [join(child, arrays, fill) for child in node]
    if not isinstance(node, dict):
        return node
    if _ARRAY in node:
        return np.array(arrays[node[_ARRAY]]).reshape(node["shape"])
    if _BLOCKS not in node:
        return {key: join(child, arrays, fill) for key, child in node.items()}
    array = np.zeros(node["shape"], node["dtype"])
    for place, number in enumerate(range(*node[_BLOCKS])):
        start = place * node["rows"]
        fill(number, array[start : start + node["rows"]])
    return array
