"""Networks: what acts in NumPy and what by its graph, encoders of users, initial weights, normalizer, optimizer.

`policies/test_contract.py` and `policies/export/test_writer.py` compare the two forms of all networks.
"""

import math
import pickle
from copy import deepcopy

import numpy as np
import pytest
from fakes import IMAGE, VECTOR, dict_of, discrete, mask_of, needs_kernels, space_of

from minding.engine import Config
from minding.engine.data.observation import observation_leaves
from minding.engine.errors import ConfigError
from minding.engine.process.runtime import ms, nn, to_device
from minding.policies.acting import numpy_encoders
from minding.policies.core.acting_network import GraphNetwork, acting_network
from minding.policies.learning import optim
from minding.policies.learning.optim import Group, Optimizer
from minding.policies.networks import encoder
from minding.policies.networks.actor_critic import ActorCritic, StateValue
from minding.policies.networks.encoder import ConvNet, Normalizer
from minding.policies.networks.layers import MLP, Linear, orthogonal
from minding.policies.networks.traced import traced_form

MODEL = Config(
    hidden=[8, 8], activation="tanh", norm="none", normalize_obs=False, encoder_dim=4, cnn=[], cnn_dim=8, log_std=-0.5
)


def rng(seed=0):
    return np.random.default_rng(seed)


def network(kind, observation, action, **model):
    spec = {"observation": observation, "action": action}
    return kind(spec, Config({**MODEL, **model}), rng())


def observations(space, count):
    """Random leaves of an observation space, as environments hand them out."""
    draw, shapes = rng(1), [(count, *leaf.space["shape"]) for leaf in observation_leaves(space)]
    return [
        draw.integers(0, 256, shape, dtype=np.uint8) if len(shape) > 2 else draw.standard_normal(shape, np.float32)
        for shape in shapes
    ]


PICTURE = dict_of(image=IMAGE, speed=VECTOR)


@needs_kernels
@pytest.mark.parametrize("sizes", [(3, 5), (4, 64, 64), (33, 128, 16, 8), (130, 256, 70)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_network_of_kernels_computes_what_float64_does(sizes, activation):
    acting = MLP(sizes[0], sizes[1:], activation, 1.0, rng(3), "none").host()
    for net in (acting, deepcopy(acting)):
        for shape in ((1,), (4,), (7,), (8,), (2, 5), (200,)):
            x = rng(7).standard_normal((*shape, sizes[0])).astype(np.float32)
            expected = x.astype(np.float64)
            for transposed, bias in net.layers:
                expected = expected @ transposed.astype(np.float64) + bias
                expected = np.maximum(expected, 0) if activation == "relu" else np.tanh(expected)
            assert net.kernel is not None
            np.testing.assert_allclose(net(x), expected, rtol=1e-5, atol=2e-6)
        for _, bias in net.layers:
            bias += 0.5


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_kernels)])
def test_a_convolution_of_a_board_is_that_of_float64(compiled, relu, monkeypatch):
    monkeypatch.setattr(numpy_encoders, "compiled", lambda: compiled)
    weight, bias = (rng(5).standard_normal(shape).astype(np.float32) for shape in ((32, 3, 3, 3), (32,)))
    x = rng(6).standard_normal((5, 4, 6, 3)).astype(np.float32)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).astype(np.float64)
    expected = sum(
        padded[:, i : i + 4, j : j + 6] @ weight[:, :, i, j].T.astype(np.float64) for i in range(3) for j in range(3)
    )
    expected = expected + bias
    convolution = numpy_encoders.Convolution(weight, bias, relu)
    copy = deepcopy(convolution)
    weight[:] = 0
    np.testing.assert_allclose(copy(x), np.maximum(expected, 0) if relu else expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(
        convolution(x[:2]), np.broadcast_to(np.maximum(bias, 0) if relu else bias, (2, 4, 6, 32))
    )


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_kernels)])
def test_images_are_encoded_in_numpy_only_with_the_kernels(compiled, monkeypatch):
    monkeypatch.setattr(encoder, "compiled", lambda: compiled)
    net = network(ActorCritic, PICTURE, discrete(3))
    if not compiled:
        with pytest.raises(ConfigError, match=r"has to compute in NumPy, and .*no attribute 'host'"):
            acting_network(net, "numpy", "act")
    image, speed = observations(PICTURE, 4)
    act = acting_network(net, "auto", "act")
    assert isinstance(act, GraphNetwork) is not compiled
    value, logits = act([image, speed])
    assert (value.shape, logits.shape) == ((4,), (4, 3))
    # An image has a layer already: another one, and a narrow one, would leave little of it.
    assert net.encoder.layers == [None, 0]
    assert net.encoder.out_features == MODEL.cnn_dim + MODEL.encoder_dim
    assert not np.array_equal(act([image // 2, speed])[1], logits)
    assert not np.array_equal(act([image, speed / 2])[1], logits)
    graph = acting_network(net, "graph", "act")
    for count in (2, 4, 1):
        for mine, expected in zip(act([image[:count], speed[:count]]), graph([image[:count], speed[:count]])):
            np.testing.assert_allclose(mine, expected, atol=1e-5)


def test_convolutions_begin_orthogonal():
    net = ConvNet((4, 84, 84), encoder.NATURE_CNN, 64, rng())
    for convolution in net.convolutions:
        weight = convolution.weight.asnumpy().reshape(len(convolution.weight), -1)
        np.testing.assert_allclose(weight @ weight.T, 2.0 * np.eye(len(weight)), atol=1e-5)
        assert not convolution.bias.asnumpy().any()


def test_convolutions_follow_the_shorter_side_of_the_image():
    model = Config(cnn=[])
    chosen = {side: list(encoder.layers_of((4, side, 90), model)) for side in (3, 15, 16, 63, 64)}
    grid, small, large = [(16, 3, 1)], [(16, 3, 2), (32, 3, 2)], [(32, 8, 4), (64, 4, 2), (64, 3, 1)]
    assert chosen == {3: grid, 15: grid, 16: small, 63: small, 64: large}
    assert encoder.layers_of((4, 10, 10), Config(cnn=[[8, 2, 2]])) == [[8, 2, 2]]


def test_an_actor_compiles_at_most_once_for_each_power_of_two():
    net = network(ActorCritic, VECTOR, space_of(4))
    act = acting_network(net, "graph", "act")
    for count in range(1, 17):
        value, mean, log_std = act(observations(VECTOR, count))
        # The deviation has no batch axis; 4 dimensions are not cut when 3 rows are padded to 4.
        assert (value.shape, mean.shape, log_std.shape) == ((count,), (count, 4), (4,))
    assert act._compiled.signatures == 5


def test_a_large_network_acts_by_graph_and_a_small_one_by_numpy():
    small = network(ActorCritic, VECTOR, discrete(2))
    large = network(ActorCritic, VECTOR, discrete(2), hidden=[1500, 1500])
    assert not isinstance(acting_network(small, "auto", "act"), GraphNetwork)
    assert isinstance(acting_network(large, "auto", "act"), GraphNetwork)


class Doubled(ActorCritic):
    """One more layer in `heads`, of which the form of the base class knows nothing."""

    def __init__(self, spec, model, rng):
        super().__init__(spec, model, rng)
        self.more = Linear(model.hidden[-1], model.hidden[-1], 1.0, rng)

    def heads(self, features, obs):
        value, *action = super().heads(features, obs)
        return (2.0 * value + self.more(self.critic(features)).sum(-1), *action)


class Squared(nn.Cell):
    def construct(self, x):
        return x * x


LEAVES = observation_leaves(VECTOR)


def test_a_network_with_an_overridden_part_acts_by_graph(caplog):
    net = network(Doubled, VECTOR, discrete(2))
    act = acting_network(net, "auto", "mine.act", LEAVES)
    assert isinstance(act, GraphNetwork)
    assert "mine.act: the network acts through its graph" in caplog.text
    assert "Doubled overrides heads of ActorCritic" in caplog.text
    obs = observations(VECTOR, 4)
    np.testing.assert_allclose(act(obs)[0], net([to_device(x) for x in obs])[0].asnumpy(), rtol=1e-5)
    with pytest.raises(ConfigError, match="has to compute in NumPy, and Doubled overrides heads of ActorCritic"):
        acting_network(net, "numpy", "mine.act", LEAVES)


def test_a_network_without_numpy_form_acts_through_its_graph():
    net = network(ActorCritic, VECTOR, discrete(2))
    net.actor = Squared()
    net.head = Linear(net.encoder.out_features, 2, 1.0, rng())
    net.head.shared = ()
    assert isinstance(acting_network(net, "auto", "act", LEAVES), GraphNetwork)
    with pytest.raises(ConfigError, match="'Squared' object has no attribute 'host': a cell without NumPy form"):
        acting_network(net, "numpy", "act", LEAVES)


def test_a_state_value_reads_every_leaf_but_the_mask():
    space = dict_of(a=VECTOR, b=discrete(3), action_mask=mask_of(2))
    net = network(StateValue, space, discrete(2))
    leaves = [rng(1).standard_normal((2, 4)).astype(np.float32), np.ones((2, 2), bool), np.array([0, 2], np.int32)]
    first = net(tuple(map(to_device, leaves))).asnumpy()
    assert first.shape == (2,)
    for k, (change, same) in enumerate([(leaves[0] + 1, False), (~leaves[1], True), (2 - leaves[2], False)]):
        changed = [*leaves[:k], change, *leaves[k + 1 :]]
        assert np.array_equal(net(tuple(map(to_device, changed))).asnumpy(), first) == same


# Encoders of users


class OfLayers(nn.Cell):
    def __init__(self, *layers, by=None, **cells):
        super().__init__()
        self.net = nn.SequentialCell(*layers)
        self.by = by
        for name, cell in cells.items():
            setattr(self, name, cell)

    def construct(self, leaves):
        return self.by(self, *leaves) if self.by else self.net(leaves[0])

    def scaled(self, x):
        return self.net(x.astype(ms.float32) / 255)


def of_image(**form):
    conv = nn.Conv2d(2, 3, 3, has_bias=form.pop("has_bias", True), **form)
    return OfLayers(conv, nn.ReLU(), nn.Flatten(), by=lambda self, x: self.scaled(x))


IMAGES_GIVEN = [rng(3).integers(0, 256, (5, 2, 8, 9), dtype=np.uint8)]
NUMBERS = [rng(k).standard_normal((5, 4)).astype(np.float32) for k in (1, 2)]
TRACED = {
    "layers in a row": (
        OfLayers(nn.Dense(4, 6), nn.LayerNorm((6,)), nn.ReLU(), nn.Dense(6, 3, has_bias=False)),
        NUMBERS,
    ),
    "two leaves": (
        OfLayers(nn.Dense(4, 6), nn.Tanh(), b=nn.Dense(4, 6), by=lambda self, x, y: 2 * self.net(x) - self.b(y + 1.0)),
        NUMBERS,
    ),
    "cells in cells": (
        OfLayers(
            a=OfLayers(nn.Dense(4, 4)),
            b=nn.CellList([nn.Dense(4, 4)]),
            by=lambda self, x, y: self.b[0](x) * self.a([y]),
        ),
        NUMBERS,
    ),
    "valid": (of_image(stride=2, pad_mode="valid"), IMAGES_GIVEN),
    "padded": (of_image(stride=2, pad_mode="pad", padding=1), IMAGES_GIVEN),
    "same": (of_image(pad_mode="same", has_bias=False), IMAGES_GIVEN),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=needs_kernels if given is IMAGES_GIVEN else []) for n, (_, given) in TRACED.items()]
)
def test_an_encoder_of_known_layers_gets_its_numpy_form(name):
    cell, given = TRACED[name]
    form = traced_form(cell, len(given))
    for _ in range(2):
        expected = cell(tuple(to_device(x) for x in given)).asnumpy()
        for each in (form, pickle.loads(pickle.dumps(traced_form(cell, len(given))))):  # noqa: S301
            np.testing.assert_allclose(each(given), expected, rtol=1e-5, atol=2e-5)
        for p in cell.get_parameters():
            p.asnumpy()[...] += 0.1


# Start


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (1, 6)])
def test_orthogonal_rows_have_the_gain_as_their_length(shape):
    w = orthogonal(shape, 2.0, rng()).astype(np.float64)
    product = w @ w.T if shape[0] <= shape[1] else w.T @ w
    np.testing.assert_allclose(product, 4.0 * np.eye(min(shape)), atol=1e-6)
    assert orthogonal(shape, 2.0, rng()).dtype == np.float32


def test_a_linear_layer_starts_orthogonal_or_uniform():
    orthogonal_layer, uniform_layer = Linear(4, 3, 1.0, rng()), Linear(4, 3, None, rng())
    assert orthogonal_layer.bias.asnumpy().tolist() == [0.0, 0.0, 0.0]
    assert np.abs(uniform_layer.bias.asnumpy()).max() <= 0.5
    assert uniform_layer.bias.asnumpy().any()


# Normalizer


def test_the_normalizer_scales_and_clips():
    normalizer = Normalizer(1)
    x = np.array([[1.0], [3.0], [1000.0]], np.float32)
    assert normalizer(to_device(x)).asnumpy().tolist() == [[1.0], [3.0], [10.0]]
    normalizer.update(np.array([[9.0], [11.0]]))
    for scaled in (normalizer(to_device(x)).asnumpy(), normalizer.host()(x)):
        np.testing.assert_allclose(scaled, [[-9.0], [-7.0], [10.0]], rtol=1e-6)


# Optimizer


class Descend(nn.Cell):
    """Adam on given gradients."""

    def __init__(self, params, **options):
        super().__init__()
        self.optim = Optimizer(net=Group(params=params, rate=1.0, **options))

    @ms.jit
    def construct(self, rate, *grads):
        return self.optim({"net": grads}, {"rate_net": rate}, grads)["net"]


def np_adam(params, steps, rates, eps, max_norm, parts=(0, 0)):
    """The formula of the paper, float64; gradients of each part are clipped as torch's clip_grad_norm_ does."""
    params = [p.astype(np.float64) for p in params]
    m, v = [0.0] * len(params), [0.0] * len(params)
    norms = []
    for t, (grads, rate) in enumerate(zip(steps, rates), 1):
        squares = [(g.astype(np.float64) ** 2).sum() for g in grads]
        norms.append(math.sqrt(sum(squares)))
        for i, g in enumerate(grads):
            norm = math.sqrt(sum(square for square, part in zip(squares, parts) if part == parts[i]))
            g = g.astype(np.float64) * (min(1.0, max_norm / (norm + 1e-6)) if max_norm else 1.0)
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            params[i] -= rate * (m[i] / (1 - 0.9**t)) / (np.sqrt(v[i] / (1 - 0.999**t)) + eps)
    return params, norms


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("max_norm", "eps", "parts"),
    [(0.0, 1e-8, (0, 0)), (0.5, 1e-5, (0, 0)), (100.0, 1e-5, (0, 0)), (0.5, 1e-5, (1, 0)), (0.0, 1e-8, (0, 1))],
)
def test_adam_is_the_papers_over_ten_steps(max_norm, eps, parts, fused, monkeypatch):
    if not fused:
        monkeypatch.setattr(optim, "usable", lambda: False)
    draw = rng(3)
    start = [draw.standard_normal((3, 2)).astype(np.float32), draw.standard_normal(4).astype(np.float32)]
    # Small gradients, so that epsilon matters.
    steps = [[draw.normal(0, 1e-3 if t % 2 else 1.0, p.shape).astype(np.float32) for p in start] for t in range(10)]
    rates = [0.01 * (1 + t) for t in range(10)]
    params = [ms.Parameter(ms.Tensor(p.copy()), name=f"p{i}") for i, p in enumerate(start)]
    descend = Descend(params, eps=eps, max_grad_norm=max_norm, parts=parts)
    norms = [
        float(descend(to_device(np.array([rate], np.float32))[0], *[to_device(g) for g in grads]))
        for grads, rate in zip(steps, rates)
    ]
    expected, expected_norms = np_adam(start, steps, rates, eps, max_norm, parts)
    for p, e in zip(params, expected):
        np.testing.assert_allclose(p.asnumpy(), e, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(norms, expected_norms if max_norm else np.zeros(10), rtol=1e-5)
