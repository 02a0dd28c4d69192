"""Activation functions of hidden layers. Their NumPy forms are in `acting.numpy_layers`.

Activations that have no kernel in this package (see `FUSED`) use MindSpore's sigmoid and exponential, which are exact
on CPU, instead of its tanh, which is not.
"""

from __future__ import annotations

from collections.abc import Callable

from minding.engine.process.runtime import nn, ops

GELU_SLOPE, GELU_CUBE = 1.5957691216057308, 0.044715
"""2 sqrt(2 / pi), and the factor of the cube, in the form of GELU without error function."""
FUSED = ("relu", "tanh")
"""Activations that one kernel computes together with the layer before them, see `networks.fused`."""


class Tanh(nn.Cell):
    """tanh, computed with MindSpore's sigmoid."""

    def construct(self, x):
        return 2.0 * ops.Sigmoid()(2.0 * x) - 1.0


class SiLU(nn.Cell):
    """x sigmoid(x) (Elfwing et al., 2018, https://arxiv.org/abs/1702.03118)."""

    def construct(self, x):
        return x * ops.Sigmoid()(x)


class GELU(nn.Cell):
    """x Phi(x), approximated by 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel, 2016,
    https://arxiv.org/abs/1606.08415, section 2)."""

    def construct(self, x):
        return x * ops.Sigmoid()(GELU_SLOPE * (x + GELU_CUBE * x * x * x))


class ELU(nn.Cell):
    """x where it is positive, else exp(x) - 1 (Clevert et al., 2016, https://arxiv.org/abs/1511.07289, eq. 15)."""

    def construct(self, x):
        # Without the minimum, the exponential of a large number would make the gradient NaN, although it is not used.
        return ops.ReLU()(x) + ops.Exp()(ops.Minimum()(x, 0.0)) - 1.0


ACTIVATIONS: dict[str, Callable[[], nn.Cell]] = {
    "relu": ops.ReLU,
    "tanh": ops.Tanh,
    "silu": SiLU,
    "gelu": GELU,
    "elu": ELU,
}
