"""Memories of networks: cells that take in one observation after another.

A memory is called with features ``(B, F)`` and the rows ``(B, S)`` that it remembers, and returns features and the new
rows; `unroll` does so for sequences of them. Rows of zeros remember nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.networks import host as numpy_forms
from minding.policies.networks.layers import Linear
from minding.policies.ops import lean


class GRU(nn.Cell):
    """Gated recurrent unit (Cho et al., 2014, https://arxiv.org/abs/1406.1078, in the form of cuDNN and PyTorch).

        r = sigmoid(W_r x + b_r + U_r h + c_r)
        z = sigmoid(W_z x + b_z + U_z h + c_z)
        n = tanh(W_n x + b_n + r (U_n h + c_n))
        h' = (1 - z) n + z h

    Args:
      in_features: F.
      size: S; the features returned are the new rows.
      rng: draws the weights.
    """

    def __init__(self, in_features: int, size: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.size = self.out_features = size
        self.inputs = Linear(in_features, 3 * size, 1.0, rng)
        self.recurrent = Linear(size, 3 * size, 1.0, rng)
        self.sigmoid = ops.Sigmoid()
        self.first_step = ms.Tensor(np.int32(0))
        self.fused: ops.Primitive | None = None

    def construct(self, x, rows):
        rows = self.step(self.inputs(x), rows)
        return rows, rows

    def step(self, given, rows):
        size = self.size
        kept = self.recurrent(rows)
        gates = self.sigmoid(given[:, : 2 * size] + kept[:, : 2 * size])
        # tanh; MindSpore's own on CPU is wrong by up to 1e-4.
        candidate = 2.0 * self.sigmoid(2.0 * (given[:, 2 * size :] + gates[:, :size] * kept[:, 2 * size :])) - 1.0
        return candidate + gates[:, size:] * (rows - candidate)

    def unroll(self, x, rows, begun):
        """Takes in T observations of B sequences one after another.

        Args:
          x: features (T B, F), in the order of time.
          rows: (B, S), what is remembered before the first ones.
          begun: float32 (T B,), 1 where what was remembered before is forgotten.

        Returns:
          Features (T B, S).
        """
        given = self.inputs(x)
        if self.fused is not None:
            return self.fused(given, begun, rows, self.recurrent.weight, self.recurrent.bias)[0]
        count, size = rows.shape
        steps = given.shape[0] // count
        given, kept = given.reshape((steps, count, 3 * size)), (1.0 - begun).reshape((steps, count, 1))
        made = ops.zeros_like(given[:, :, :size])
        t = self.first_step
        # Unrolled by the compiler, 32 steps take 14 s to compile; this takes 2 s for any number.
        while t < steps:
            rows = self.step(lean.entry(given, t), rows * lean.entry(kept, t))
            made = ops.TensorScatterUpdate()(made, t.reshape((1, 1)), rows.reshape((1, count, size)))
            t = t + 1
        return made.reshape((-1, size))

    def host(self) -> numpy_forms.GRU:
        return numpy_forms.GRU(self.inputs.host(), self.recurrent.host())


def make_memory(model: Any, in_features: int, rng: np.random.Generator) -> GRU | None:
    """The memory that ``model.memory`` names; None for 'none', and for algorithms without that setting."""
    kind = model.get("memory", "none")
    return GRU(in_features, model.memory_dim, rng) if kind == "gru" else None
