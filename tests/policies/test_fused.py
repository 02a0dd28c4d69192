"""The fused linear kernel computes what the three kernels compute, and has their gradient."""

import numpy as np
import pytest

from minding.engine import runtime
from minding.engine.runtime import ms, nn, ops, to_device
from minding.policies.networks.fused import fuse_linear_layers
from minding.policies.networks.layers import MLP, Linear

SIZES = ((5, [8, 8], 7), (3, [33, 1], 130))


class Slope(nn.Cell):
    """Outputs, and the gradients of their squares for the input and all parameters."""

    def __init__(self, inputs, hidden, activation):
        super().__init__()
        draw = np.random.default_rng(0)
        self.body = MLP(inputs, hidden, activation, None, draw)
        self.head = Linear(hidden[-1], 3, None, draw)
        self.gradient = ms.value_and_grad(self.loss, 0, ms.ParameterTuple(self.trainable_params()), has_aux=True)

    def loss(self, x):
        y = self.head(self.body(x))
        return ops.square(y).sum(), y

    @ms.jit
    def construct(self, x):
        (_, y), (dx, grads) = self.gradient(x)
        return y, dx, *grads


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("inputs", "hidden", "rows"), SIZES)
def test_values_and_gradients_are_those_of_the_plain_layers(inputs, hidden, rows, activation):
    x = to_device(np.random.default_rng(1).standard_normal((rows, inputs)).astype(np.float32))
    plain, fused = Slope(inputs, hidden, activation), Slope(inputs, hidden, activation)
    fuse_linear_layers(fused)
    assert (plain.head.fused is None, fused.head.fused is None) == (True, False)
    for a, b in zip(plain(x), fused(x)):
        np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=1e-5, atol=1e-5)


def test_a_fused_layer_by_hand():
    net = MLP(2, [2], "relu", None, np.random.default_rng(0))
    net.layers[0].weight.asnumpy()[...] = [[1, 2], [-3, 4]]
    net.layers[0].bias.asnumpy()[...] = [10, -2]
    fuse_linear_layers(net)
    assert ms.jit(net)(to_device(np.array([[1, 1], [2, 0]], np.float32))).asnumpy().tolist() == [[13, 0], [12, 0]]


def test_other_devices_keep_the_plain_layers(monkeypatch):
    monkeypatch.setattr(runtime, "device", lambda: "Ascend")
    net = MLP(2, [2], "relu", None, np.random.default_rng(0))
    fuse_linear_layers(net)
    assert net.layers[0].fused is None
    assert isinstance(net.activation, ops.ReLU)
