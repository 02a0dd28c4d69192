"""Recurrent memories in NumPy, see `acting.numpy_layers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from minding.engine.types import Array

if TYPE_CHECKING:
    from minding.policies.acting.numpy_layers import Linear


class GRU:
    """One step of a gated recurrent unit: inputs ``(B, F)`` and memory rows ``(B, S)`` to features and new memory rows,
    which are the same array.

    Args:
      inputs: layer that computes the input's part of the three gates, ``(B, 3 S)``.
      recurrent: layer that computes the memory's part.
    """

    def __init__(self, inputs: Linear, recurrent: Linear) -> None:
        self.inputs, self.recurrent = inputs, recurrent
        self.size = len(recurrent.bias) // 3

    def __call__(self, x: Array, rows: Array) -> tuple[Array, Array]:
        size = self.size
        given, kept = self.inputs(x), self.recurrent(rows)
        gates = _sigmoid(given[:, : 2 * size] + kept[:, : 2 * size])
        reset, update = gates[:, :size], gates[:, size:]
        candidate = given[:, 2 * size :] + reset * kept[:, 2 * size :]
        np.tanh(candidate, candidate)
        rows = candidate + update * (rows - candidate)
        return rows, rows


class LSTM:
    """One step of a long short-term memory: inputs ``(B, F)`` and memory rows ``(B, 2 D)`` to features ``(B, D)`` and
    new memory rows.

    Args:
      inputs: layer that computes the input's part of the four gates, ``(B, 4 D)``.
      recurrent: layer that computes the memory's part.
    """

    def __init__(self, inputs: Linear, recurrent: Linear) -> None:
        self.inputs, self.recurrent = inputs, recurrent
        self.units = len(recurrent.bias) // 4
        self.size = 2 * self.units

    def __call__(self, x: Array, rows: Array) -> tuple[Array, Array]:
        size = self.units
        total = self.inputs(x) + self.recurrent(rows[:, :size])
        gates = _sigmoid(total[:, : 3 * size])
        cell = gates[:, size : 2 * size] * rows[:, size:] + gates[:, :size] * np.tanh(total[:, 3 * size :])
        features = gates[:, 2 * size :] * np.tanh(cell)
        return features, np.concatenate([features, cell], axis=1)


Memory = GRU | LSTM


def _sigmoid(x: Array) -> Array:
    """Computes the sigmoid of x in place, without an exponential that could overflow."""
    x *= 0.5
    np.tanh(x, x)
    x *= 0.5
    x += 0.5
    return x
