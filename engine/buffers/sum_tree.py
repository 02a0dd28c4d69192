"""Sums of priorities over blocks of rows, for sampling in proportion to priority."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array

HEIGHT = 8
"""Minimum number of levels of the trees over blocks."""
ROOTS = 1 << 12
"""Maximum number of blocks: each sampling adds up their sums and searches them as one sorted array."""


class SumTree:
    """Priorities of rows, float64; reading and writing n of them takes O(n).

    Blocks hold ``2^HEIGHT`` rows or more, each with a binary tree whose inner nodes are the sums of their two children;
    the running sum over the trees' roots finds the block. The whole structure follows from the priorities alone.

    Args:
      capacity: number of rows; rows without a priority have 0.
    """

    def __init__(self, capacity: int) -> None:
        depth = max(1, (capacity - 1).bit_length())
        self._leaves = 1 << depth
        self._height = min(depth, max(HEIGHT, depth + 1 - ROOTS.bit_length()))
        # Indexed like one tree over all rows: node i is the sum of 2i and 2i + 1. Nodes above the roots are not kept.
        self._tree = np.zeros(2 * self._leaves)
        self._first_root = self._leaves >> self._height
        self._roots = self._tree[self._first_root : 2 * self._first_root]

    @property
    def total(self) -> float:
        return float(self._bounds()[-1])

    def read(self, rows: Array) -> Array:
        """Priorities of rows, float64 of the same shape."""
        priorities: Array = self._tree[self._leaves + rows]
        return priorities

    def write(self, rows: Array, priorities: Array) -> None:
        """Sets priorities (n,) of rows (n,); for a row that occurs twice the last one counts."""
        tree, node = self._tree, self._leaves + rows
        tree[node] = priorities
        for _ in range(self._height):
            node = node >> 1
            left = node << 1
            tree[node] = tree[left] + tree[left + 1]

    def find(self, mass: Array) -> Array:
        """The rows at which the running sum of priorities passes `mass`, in [0, total); int64 of the same shape."""
        bounds = self._bounds()
        root = np.searchsorted(bounds[1:-1], mass, side="right")
        tree, node = self._tree, self._first_root + root
        mass = mass - bounds[root]
        for _ in range(self._height):
            node = node << 1
            left = tree[node]
            right = mass >= left
            mass -= left * right
            node += right
        rows: Array = node - self._leaves
        return rows

    def _bounds(self) -> Array:
        """The running sum of priorities before each block and, last, after all of them."""
        bounds = np.zeros(len(self._roots) + 1)
        np.cumsum(self._roots, out=bounds[1:])
        return bounds
