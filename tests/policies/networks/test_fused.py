"""Graphs with kernels of our own compute what those of MindSpore's kernels compute, with the same gradients."""

import numpy as np
import pytest
from fakes import VECTOR, dict_of, needs_kernels, space_of

from minding.engine import Config
from minding.engine.data.observation import observation_leaves
from minding.engine.process import runtime
from minding.engine.process.runtime import ms, nn, ops, to_device
from minding.policies import kernels
from minding.policies.networks.actor_critic import ActionValue, DeterministicActor, SquashedActor
from minding.policies.networks.encoder import ConvNet, ImageDecoder
from minding.policies.networks.fused import fuse_layers, plain_layers
from minding.policies.networks.layers import MLP, Linear
from minding.policies.networks.policy_value import ResidualTower

pytestmark = needs_kernels
SIZES = ((5, [8, 8], 7), (3, [33, 1], 130), (4, [6], 5), (3, [5, 4, 6], 9))
PLAIN = [(*sizes, activation, "none") for sizes in SIZES for activation in ("relu", "tanh")]
NORMALIZED = [(5, [17, 8], 33, "relu", "layer"), (5, [8, 3], 33, "tanh", "layer"), (5, [9], 33, "silu", "layer")]


class Slope(nn.Cell):
    """Outputs of a network, and the gradients of their squares for its inputs, unless they are images, and parameters.

    Args:
      net: takes its inputs, or an action and the other inputs as a tuple.
    """

    def __init__(self, net, images=False):
        super().__init__()
        self.net, self.images, self.takes_action = net, images, isinstance(net, ActionValue)
        self.takes_leaves = isinstance(net, (SquashedActor, DeterministicActor, ResidualTower))
        params = ms.ParameterTuple(self.trainable_params())
        self.gradient = ms.value_and_grad(self.loss, None if images else 0, params, has_aux=True)

    def loss(self, inputs):
        if self.takes_action:
            outputs = self.net(inputs[0], inputs[1:])
        else:
            outputs = self.net(inputs) if self.takes_leaves else self.net(inputs[0])
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        total = 0.0
        for y in outputs:
            total = total + ops.square(y).sum()
        return total, outputs

    @ms.jit
    def construct(self, *inputs):
        if self.images:
            (_, outputs), grads = self.gradient(inputs)
            return *outputs, *grads
        (_, outputs), (dx, grads) = self.gradient(inputs)
        return *outputs, *dx, *grads


class Layers(nn.Cell):
    def __init__(self, inputs, hidden, activation, norm="none"):
        super().__init__()
        draw = np.random.default_rng(0)
        self.body = MLP(inputs, hidden, activation, None, draw, norm)
        for p in (p for norms in self.body.norms for p in norms.get_parameters()):
            p.asnumpy()[...] += 0.3 * draw.standard_normal(p.shape).astype(np.float32)
        self.head = Linear(hidden[-1], 3, None, draw)

    def construct(self, x):
        return self.head(self.body(x))


def check_forms(plain, fused, *inputs, **tolerance):
    """Both compute the same: the second one with the kernels, where it is fused here."""
    for a, b in zip(plain(*inputs), fused(*inputs), strict=True):
        np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), **{"rtol": 1e-4, "atol": 2e-5, **tolerance})


@pytest.mark.parametrize(("inputs", "hidden", "rows", "activation", "norm"), [*PLAIN, *NORMALIZED])
def test_values_and_gradients_are_those_of_the_plain_layers(inputs, hidden, rows, activation, norm):
    x = to_device(np.random.default_rng(1).standard_normal((rows, inputs)).astype(np.float32))
    plain, fused = (Slope(Layers(inputs, hidden, activation, norm)) for _ in range(2))
    fuse_layers(fused)
    assert (plain.net.head.fused is None, fused.net.head.fused is None) == (True, False)
    assert not any(each.fused for each in plain.net.body.norms)
    if norm == "none":
        assert (plain.net.body.layers_activate, fused.net.body.layers_activate) == (False, True)
        check_forms(plain, fused, x, rtol=1e-5, atol=1e-5)
    else:
        assert [each.fused is None for each in fused.net.body.norms] == [False] * len(hidden)
        check_forms(plain, fused, x)
        plain_layers(fused)
        assert not any(each.fused for each in fused.net.body.norms)


IMAGES = pytest.mark.parametrize(
    ("shape", "layers"),
    [
        # Strides that do not divide the image, two convolutions, and one.
        ((4, 38, 45), [(8, 8, 4), (12, 3, 2), (6, 2, 1)]),
        ((3, 7, 7), [(16, 3, 2), (32, 3, 2)]),
        ((2, 5, 6), [(5, 3, 1)]),
    ],
)


@IMAGES
@pytest.mark.parametrize("scale", [1.0, 1 / 255])
def test_convolutions_equal_the_plain_ones(shape, layers, scale):
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (9, *shape)).astype(np.uint8)
    x = to_device(images if scale != 1.0 else draw.standard_normal(images.shape).astype(np.float32))
    nets = [ConvNet(shape, layers, 7, np.random.default_rng(0), scale) for _ in range(2)]
    plain, fused = (Slope(with_biases(net), images=True) for net in nets)
    fuse_layers(fused)
    assert (plain.net.fused is None, fused.net.fused is None) == (True, False)
    check_forms(plain, fused, x)
    plain_layers(fused)
    assert fused.net.fused is None


def with_biases(net):
    for p in net.get_parameters():
        if p.name.endswith("bias"):
            p.asnumpy()[...] += 0.1
    return net


@IMAGES
def test_decoders_of_images_equal_the_plain_ones(shape, layers):
    x = np.random.default_rng(2).standard_normal((9, 5)).astype(np.float32)
    plain, fused = (Slope(with_biases(ImageDecoder(5, shape, layers, np.random.default_rng(0)))) for _ in range(2))
    fuse_layers(fused)
    assert (plain.net.fused is None, fused.net.fused is None) == (True, False)
    expected, found = ([y.asnumpy() for y in net(to_device(x))] for net in (plain, fused))
    assert len(found) == 2 + 2 * (1 + len(layers))
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5 * np.abs(a).max())
    assert found[0].shape == (9, np.prod(shape))
    plain_layers(fused)
    assert fused.net.fused is None


@pytest.mark.parametrize("lack", ["device", "compiler"])
def test_without_the_kernels_the_plain_layers_stay(lack, monkeypatch):
    if lack == "device":
        monkeypatch.setattr(runtime, "device", lambda: "Ascend")
    else:
        monkeypatch.setattr(kernels, "compiled", lambda: False)
    net = MLP(2, [2], "relu", None, np.random.default_rng(0))
    fuse_layers(net)
    assert net.layers[0].fused is None
    assert not net.layers_activate
    assert isinstance(net.activation, ops.ReLU)


def both_forms(monkeypatch, build):
    fused = build()
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "compiled", lambda: False)
        return fused, build()


MODEL = {
    **{"hidden": [17, 9], "activation": "relu", "norm": "none", "normalize_obs": False, "encoder_dim": 6},
    **{"cnn": None, "cnn_dim": 4},
}
SPECS = {
    "vector": {"observation": VECTOR, "action": space_of(2)},
    "one action": {"observation": space_of(3), "action": space_of(1)},
    "two leaves": {"observation": dict_of(a=VECTOR, b=space_of(3)), "action": space_of(2, 2)},
}


def network_slope(network, spec, **model):
    net = network(spec, Config({**MODEL, **model}), np.random.default_rng(0))
    fuse_layers(net)
    return Slope(net)


LARGE = ("one action", [96, 96], 128)
"""From 2^20 multiplications on zeros are left out, and the slope of ReLU is a mask."""


@pytest.mark.parametrize(
    ("network", "spec", "hidden", "rows"),
    [
        *((network, "two leaves", [17, 9], 7) for network in (ActionValue, SquashedActor)),
        *((network, *LARGE) for network in (ActionValue, DeterministicActor)),
    ],
)
def test_networks_have_the_values_and_gradients_of_their_layers(network, spec, hidden, rows, monkeypatch):
    spec = SPECS[spec]
    inputs = [leaf.space["shape"] for leaf in observation_leaves(spec["observation"])]
    if network is ActionValue:
        inputs = [spec["action"]["shape"], *inputs]
    rng = np.random.default_rng(6)
    tensors = [to_device(rng.standard_normal((rows, *shape)).astype(np.float32)) for shape in inputs]
    fused, plain = both_forms(monkeypatch, lambda: network_slope(network, spec, hidden=hidden))
    assert (plain.net.torso.layers_activate, fused.net.torso.layers_activate) == (False, True)
    check_forms(plain, fused, *tensors, atol=1e-4 if rows > 100 else 1e-5)


def test_the_log_deviation_of_a_fused_actor_keeps_its_bounds(monkeypatch):
    def build():
        form = network_slope(SquashedActor, SPECS["vector"])
        form.net.head.log_std.bias.asnumpy()[...] = [40.0, -50.0]
        return form

    x = to_device(np.random.default_rng(7).standard_normal((5, 4)).astype(np.float32))
    for form in both_forms(monkeypatch, build):
        outputs = form(x)
        assert np.array_equal(outputs[1].asnumpy(), [[2.0, -20.0]] * 5)
        # Beyond the bounds there is no gradient: those of weight and bias of the log deviation come last.
        assert not any(gradient.asnumpy().any() for gradient in outputs[-2:])
