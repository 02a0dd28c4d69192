"""A binary tree of sums: draws rows in proportion to their priority."""

from __future__ import annotations

import numpy as np

from minding.engine.types import Array


class SumTree:
    """Priorities of rows, float64; reading and writing n of them takes O(n log capacity).

    Every inner node is the sum of its two children, so that the tree follows from the priorities alone.

    Args:
      capacity: number of rows; those without a priority have 0.
    """

    def __init__(self, capacity: int) -> None:
        self._depth = max(1, (capacity - 1).bit_length())
        self._leaves = 1 << self._depth
        self._tree = np.zeros(2 * self._leaves)

    @property
    def total(self) -> float:
        return float(self._tree[1])

    def read(self, rows: Array) -> Array:
        """Priorities of rows, float64 of the same shape."""
        priorities: Array = self._tree[self._leaves + rows]
        return priorities

    def write(self, rows: Array, priorities: Array) -> None:
        """Sets priorities (n,) of rows (n,); of a row given twice the last one stays."""
        tree, node = self._tree, self._leaves + rows
        tree[node] = priorities
        for _ in range(self._depth):
            node = node >> 1
            tree[node] = tree[2 * node] + tree[2 * node + 1]

    def find(self, mass: Array) -> Array:
        """The rows at which the running sum of priorities passes `mass`, in [0, total); int64 of the same shape."""
        tree, node, mass = self._tree, np.ones(mass.shape, np.int64), mass.copy()
        for _ in range(self._depth):
            node = 2 * node
            left = tree[node]
            right = mass >= left
            mass -= np.where(right, left, 0.0)
            node += right
        rows: Array = node - self._leaves
        return rows
