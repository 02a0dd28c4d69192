"""Residual convolutions in NumPy, see `networks.residual`.

A convolution is one matrix product over the 3x3 neighborhoods of all squares. Positions are processed in blocks that
are small enough for the neighborhoods to stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minding.engine.types import Array

_BLOCK = 16
"""Number of positions per block."""


class Convolution:
    """3x3 convolution with zero padding of 1.

    Args:
      weight: ``(filters, channels, 3, 3)``.
      bias: ``(filters,)``.
    """

    def __init__(self, weight: Array, bias: Array) -> None:
        self.weight, self.bias = weight, bias

    def matrix(self) -> Array:
        """The weights as ``(9 * channels, filters)``: a copy of the current ones, which learning changes in place."""
        return np.ascontiguousarray(self.weight.transpose(2, 3, 1, 0)).reshape(-1, len(self.weight))

    def into(self, bordered: Array, matrix: Array) -> Array:
        """The result ``(B, H, W, filters)`` for padded input ``(B, H + 2, W + 2, channels)`` and weights `matrix`."""
        count, height, width, channels = bordered.shape
        height, width = height - 2, width - 2
        around = np.empty((count, height, width, 9, channels), np.float32)
        for k in range(9):
            row, column = divmod(k, 3)
            around[:, :, :, k] = bordered[:, row : row + height, column : column + width]
        y: Array = around.reshape(-1, 9 * channels) @ matrix
        y += self.bias
        return y.reshape(count, height, width, -1)


class ResidualTower:
    """Residual tower in NumPy, see `networks.residual.ResidualTower`."""

    def __init__(self, place: int, stem: Convolution, blocks: Sequence[tuple[Convolution, Convolution]]) -> None:
        self.place, self.stem, self.blocks = place, stem, list(blocks)

    def __call__(self, leaves: Sequence[Array]) -> Array:
        """Features ``(B, channels * H * W)`` of the planes ``(B, C, H, W)``, which are leaf number `place`."""
        planes = leaves[self.place]
        stem = self.stem.matrix()
        blocks = [(a, a.matrix(), b, b.matrix()) for a, b in self.blocks]
        count, channels = len(planes), stem.shape[1]
        height, width = planes.shape[2:]
        features = np.empty((count, channels, height, width), np.float32)
        for start in range(0, count, _BLOCK):
            rows = slice(start, min(start + _BLOCK, count))
            x = np.maximum(self.stem.into(_bordered(planes[rows].transpose(0, 2, 3, 1)), stem), 0.0)
            for first, first_matrix, second, second_matrix in blocks:
                between = first.into(_bordered(x), first_matrix)
                np.maximum(between, 0.0, between)
                y = second.into(_bordered(between), second_matrix)
                y += x
                x = np.maximum(y, 0.0, y)
            features[rows] = x.transpose(0, 3, 1, 2)
        return features.reshape(count, -1)


def _bordered(x: Array) -> Array:
    """Pads positions ``(B, H, W, C)`` with a border of zeros."""
    count, height, width, channels = x.shape
    bordered = np.zeros((count, height + 2, width + 2, channels), np.float32)
    bordered[:, 1:-1, 1:-1] = x
    return bordered
