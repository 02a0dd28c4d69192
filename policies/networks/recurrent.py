"""Memories of networks: cells that process one observation after another.

A memory is called with features ``(B, F)`` and memory rows ``(B, S)``, and returns features and new memory rows;
`unroll` and `take_in` process sequences. Rows of zeros are an empty memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minding.engine.process.runtime import ms, nn, ops
from minding.policies.acting import numpy_layers
from minding.policies.networks.layers import Linear
from minding.policies.ops import primitives


class Memory(nn.Cell):
    """Base of memories. A subclass defines `gates`, `step`, `features` and `host`.

    Args:
      in_features: size of the input features, F.
      dim: size of the returned features, D.
      size: number of values in a memory row, S.

    Attributes:
      gates: number of layers of D units on the input, and also on the memory.
    """

    gates: int

    def __init__(self, in_features: int, dim: int, size: int, rng: np.random.Generator) -> None:
        super().__init__()
        self.size, self.out_features = size, dim
        self.inputs = Linear(in_features, self.gates * dim, 1.0, rng)
        self.recurrent = Linear(dim, self.gates * dim, 1.0, rng)
        self.sigmoid = ops.Sigmoid()
        self.first_step = ms.Tensor(np.int32(0))
        self.fused: ops.Primitive | None = None

    def construct(self, x, rows):
        rows = self.step(self.inputs(x), rows)
        return self.features(rows), rows

    def step(self, given, rows):
        """The new memory rows (B, S).

        Args:
          given: output of the layer `inputs`, (B, gates D).
          rows: memory rows (B, S) before the step.
        """
        raise NotImplementedError

    def features(self, rows):
        """The features (B, D) that belong to memory rows (B, S)."""
        raise NotImplementedError

    def tanh(self, x):
        # MindSpore's own tanh on CPU is wrong by up to 1e-4.
        return 2.0 * self.sigmoid(2.0 * x) - 1.0

    def unroll(self, x, rows, begun):
        """Processes the T observations of B sequences one after another.

        Args:
          x: features (T B, F), ordered by time.
          rows: memory (B, S) before the first observations.
          begun: float32 (T B,), 1 where the memory is cleared before the observation.

        Returns:
          Features (T B, D).
        """
        given = self.inputs(x)
        if self.fused is not None:
            return self.fused(given, begun, rows, self.recurrent.weight, self.recurrent.bias)[0]
        count, size = rows.shape[0], self.out_features
        steps = given.shape[0] // count
        given, kept = given.reshape((steps, count, self.gates * size)), (1.0 - begun).reshape((steps, count, 1))
        made = ops.zeros_like(given[:, :, :size])
        t = self.first_step
        # If the compiler unrolls the loop, 32 steps take 14 s to compile; this form takes 2 s for any number of steps.
        while t < steps:
            rows = self.step(primitives.entry(given, t), rows * primitives.entry(kept, t))
            made = ops.TensorScatterUpdate()(made, t.reshape((1, 1)), self.features(rows).reshape((1, count, size)))
            t = t + 1
        return made.reshape((-1, size))

    def take_in(self, x, rows, counted):
        """Processes the T observations of B sequences one after another, and returns only the memory after them.

        Args:
          x: features (T B, F), ordered by time.
          rows: memory (B, S) before the first observations.
          counted: float32 (T, B), 0 where an observation is left out, else 1.

        Returns:
          Memory rows (B, S).
        """
        count, size = rows.shape[0], self.out_features
        steps = x.shape[0] // count
        given, counted = self.inputs(x).reshape((steps, count, self.gates * size)), ops.ExpandDims()(counted, -1)
        t = self.first_step
        while t < steps:
            taken = primitives.entry(counted, t)
            rows = taken * self.step(primitives.entry(given, t), rows) + (1.0 - taken) * rows
            t = t + 1
        return rows

    def host(self) -> numpy_layers.Recurrent:
        """The NumPy form."""
        raise NotImplementedError


class GRU(Memory):
    """Gated recurrent unit (Cho et al., 2014, https://arxiv.org/abs/1406.1078, in the form of cuDNN and PyTorch).

        r = sigmoid(W_r x + b_r + U_r h + c_r)
        z = sigmoid(W_z x + b_z + U_z h + c_z)
        n = tanh(W_n x + b_n + r (U_n h + c_n))
        h' = (1 - z) n + z h

    The memory row is h, which is also the returned features.

    Args:
      in_features: size of the input features, F.
      dim: size of h.
    """

    gates = 3

    def __init__(self, in_features: int, dim: int, rng: np.random.Generator) -> None:
        super().__init__(in_features, dim, dim, rng)

    def step(self, given, rows):
        size = self.out_features
        kept = self.recurrent(rows)
        gates = self.sigmoid(given[:, : 2 * size] + kept[:, : 2 * size])
        candidate = self.tanh(given[:, 2 * size :] + gates[:, :size] * kept[:, 2 * size :])
        return candidate + gates[:, size:] * (rows - candidate)

    def features(self, rows):
        return rows

    def host(self) -> numpy_layers.GRU:
        return numpy_layers.GRU(self.inputs.host(), self.recurrent.host())


class LSTM(Memory):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997, https://doi.org/10.1162/neco.1997.9.8.1735; with the
    forget gate of Gers et al., 2000, https://doi.org/10.1162/089976600300015015).

        i, f, o = sigmoid(W x + b + U h + c), each with its own weights
        g = tanh(W_g x + b_g + U_g h + c_g)
        c' = f c + i g
        h' = o tanh(c')

    The memory row is h and c joined, and the returned features are h. The forget gate starts with the bias 1
    (Jozefowicz et al., 2015, https://proceedings.mlr.press/v37/jozefowicz15.html); otherwise half of the memory would
    be lost in every step.

    Args:
      in_features: size of the input features, F.
      dim: size of h and of c.
    """

    gates = 4

    def __init__(self, in_features: int, dim: int, rng: np.random.Generator) -> None:
        super().__init__(in_features, dim, 2 * dim, rng)
        self.inputs.bias.asnumpy()[dim : 2 * dim] = 1.0

    def step(self, given, rows):
        size = self.out_features
        total = given + self.recurrent(rows[:, :size])
        gates = self.sigmoid(total[:, : 3 * size])
        cell = gates[:, size : 2 * size] * rows[:, size:] + gates[:, :size] * self.tanh(total[:, 3 * size :])
        return ops.Concat(-1)((gates[:, 2 * size :] * self.tanh(cell), cell))

    def features(self, rows):
        return rows[:, : self.out_features]

    def host(self) -> numpy_layers.LSTM:
        return numpy_layers.LSTM(self.inputs.host(), self.recurrent.host())


def make_memory(model: Any, in_features: int, rng: np.random.Generator) -> Memory | None:
    """The memory that ``model.memory`` names; None for 'none' and for algorithms without this setting."""
    kind = model.get("memory", "none")
    return None if kind == "none" else MEMORIES[kind](in_features, model.memory_dim, rng)


MEMORIES: dict[str, type[GRU] | type[LSTM]] = {"gru": GRU, "lstm": LSTM}
