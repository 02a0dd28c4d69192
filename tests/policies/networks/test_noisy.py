"""Noisy layers: their start, rows with noise of their own, and how a policy of them acts."""

import copy
import math

import numpy as np
import pytest
from action_values import Noise, linear, make_policy
from numeric import value

from minding.engine.process.runtime import to_device
from minding.policies.networks.return_distribution import NoisyLinear, NoisyMLP, place_noise


def rng(seed=0):
    return np.random.default_rng(seed)


def draw(*shape, seed=1):
    return rng(seed).standard_normal(shape).astype(np.float32)


def parameters(net, name="net"):
    return {f"{name}.{path}": p.asnumpy().astype(np.float64) for path, p in net.parameters_and_names()}


def test_a_noisy_layer_starts_uniform_with_one_deviation():
    layer = NoisyLinear(16, 100, 0.5, rng())
    for mean in (layer.mean.weight.asnumpy(), layer.mean.bias.asnumpy()):
        assert 0.2 < np.abs(mean).max() <= 0.25
    for deviation in (layer.deviation.weight.asnumpy(), layer.deviation.bias.asnumpy()):
        assert (deviation == np.float32(0.5 / math.sqrt(16))).all()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_every_row_can_have_noise_of_its_own(activation):
    net = NoisyMLP(3, [5, 4], activation, 0.5, rng())
    assert place_noise(net) == (3 + 5) + (5 + 4)
    x, noise, p = 3.0 * draw(6, 3), draw(6, 17, seed=2), parameters(net)
    expected = []
    for row, numbers in zip(x.astype(np.float64), noise):
        numbers = Noise(numbers)
        for k in range(2):
            row = linear(p, f"net.layers.{k}", row, numbers)
            row = np.maximum(row, 0.0) if activation == "relu" else np.tanh(row)
        expected.append(row)
    np.testing.assert_allclose(net.host()(x, noise), expected, atol=1e-5)
    np.testing.assert_allclose(value(net(to_device(x), to_device(noise))), expected, atol=1e-5)
    # One noise for all rows.
    first = net.host()(x, noise[:1])
    np.testing.assert_allclose(value(net(to_device(x), to_device(noise[:1]))), first, atol=1e-5)
    np.testing.assert_allclose(first[0], expected[0], atol=1e-5)
    assert not np.allclose(first[1], expected[1], atol=1e-2)


OBS = draw(200, 4)


@pytest.fixture(scope="module")
def noisy():
    return make_policy("rainbow", **{"policy.model.noisy_sigma": 2.0})


@pytest.fixture
def policy(noisy):
    state = copy.deepcopy(noisy.state_dict())
    yield noisy
    noisy.load_state_dict(state)


def test_each_acting_row_has_its_own_noise_but_evaluation_none(policy):
    same = np.repeat(OBS[:1], 200, axis=0)
    rows = policy.collect_mode.forward(same)["action"]
    assert len(np.unique(rows)) > 1
    steps = [policy.collect_mode.forward(OBS)["action"] for _ in range(2)]
    assert not np.array_equal(*steps)
    greedy = policy.actors["eval"].outputs(OBS)[0].argmax(axis=1)
    assert np.array_equal(policy.eval_mode.forward(OBS), greedy)
    assert 0.1 < (steps[0] != greedy).mean() < 0.9


def test_a_graph_explores_with_the_same_noise_as_the_host(policy):
    graph = make_policy("rainbow", **{"policy.collect.backend": "graph"})
    graph.load_state_dict(policy.state_dict())
    # 5 rows are padded to 8.
    host, compiled = (each.actors["collect"].outputs(OBS[:5], explore=True)[0] for each in (policy, graph))
    np.testing.assert_allclose(host, compiled, atol=1e-5)
    assert not np.allclose(host, policy.actors["eval"].outputs(OBS[:5])[0], atol=1e-2)
