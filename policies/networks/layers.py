"""Linear layers and multilayer perceptrons, each with a compiled and a NumPy form.

`construct` is what MindSpore compiles; `host()` returns a NumPy function over zero-copy views of the same live
parameters, so that it follows training. Both forms stand side by side and a test holds them equal to 1e-5. One place
is less exact: MindSpore's tanh on CPU is a rational approximation, off by up to 1e-6 for |x| < 3 and 1e-4 beyond.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from minding.engine.runtime import ms, nn, ops
from minding.engine.types import Array
from minding.policies.networks.init import fan_in_uniform, orthogonal

HostFunction = Callable[[Array], Array]


def _relu(x: Array) -> Array:
    return np.maximum(x, 0.0, out=x)


def _tanh(x: Array) -> Array:
    return np.tanh(x, out=x)


ACTIVATIONS = {"relu": (ops.ReLU, _relu), "tanh": (ops.Tanh, _tanh)}


class Linear(nn.Cell):
    """y = x W^T + b for x ``(B, in)``.

    Args:
      in_features, out_features: sizes.
      gain: orthogonal start with this gain and zero bias; None: uniform in +-1/sqrt(in_features).
      rng: draws the weights.
    """

    def __init__(self, in_features: int, out_features: int, gain: float | None, rng: np.random.Generator) -> None:
        super().__init__()
        shape = (out_features, in_features)
        if gain is None:
            weight, bias = fan_in_uniform(shape, in_features, rng), fan_in_uniform(shape[:1], in_features, rng)
        else:
            weight, bias = orthogonal(shape, gain, rng), np.zeros(out_features, np.float32)
        self.weight = ms.Parameter(ms.Tensor(weight), name="weight")
        self.bias = ms.Parameter(ms.Tensor(bias), name="bias")
        self.matmul = ops.MatMul(transpose_b=True)
        self.add_bias = ops.BiasAdd()
        self.fused: ops.Primitive | None = None

    def construct(self, x):
        if self.fused is not None:
            return self.fused(x, self.weight, self.bias, False, True)
        return self.add_bias(self.matmul(x, self.weight), self.bias)

    def host(self) -> HostFunction:
        weight, bias = self.weight.asnumpy().T, self.bias.asnumpy()

        def forward(x: Array) -> Array:
            y: Array = x @ weight
            y += bias
            return y

        return forward


class MLP(nn.Cell):
    """Linear layers with an activation after each.

    Args:
      in_features: size of the input.
      hidden: sizes of the layers; empty gives the identity.
      activation: 'relu' or 'tanh'.
      gain: see `Linear`.
      rng: draws the weights.
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int], activation: str, gain: float | None, rng: np.random.Generator
    ) -> None:
        super().__init__()
        sizes = [in_features, *hidden]
        self.out_features = sizes[-1]
        self.layers = nn.CellList([Linear(a, b, gain, rng) for a, b in itertools.pairwise(sizes)])
        graph, self._host_activation = ACTIVATIONS[activation]
        self.activation = graph()

    def construct(self, x):
        for layer in self.layers:
            x = self.activation(layer(x))
        return x

    def host(self) -> HostFunction:
        layers = [layer.host() for layer in self.layers]
        activation = self._host_activation

        def forward(x: Array) -> Array:
            for layer in layers:
                x = activation(layer(x))
            return x

        return forward
