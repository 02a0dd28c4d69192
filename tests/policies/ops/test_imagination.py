"""Lambda-returns, weights and the scale of returns: by hand and against NumPy in float64."""

import numpy as np
import pytest
from numeric import assert_gradient, value

from minding.engine.process.runtime import ops, to_device
from minding.policies.ops.imagination import NO_RANGE, lambda_returns, percentiles, reach_weights, running_range, width


def device(x):
    return to_device(np.asarray(x, np.float32))


def np_returns(reward, decay, v, lam):
    ahead, made = v[-1], np.zeros_like(reward)
    for t in reversed(range(len(reward))):
        ahead = made[t] = reward[t] + decay[t] * ((1 - lam) * v[t] + lam * ahead)
    return made


def test_returns_by_hand():
    # R_1 = 2 + 0.5 * 8 = 6;  R_0 = 1 + 0.5 * (0.5 * 4 + 0.5 * 6) = 3.5
    found = lambda_returns(device([[1.0], [2.0]]), device([[0.5], [0.5]]), device([[4.0], [8.0]]), 0.5)
    assert value(found).ravel().tolist() == [3.5, 6.0]
    assert value(lambda_returns(device([[1.0]]), device([[0.5]]), device([[4.0]]), 0.5)).tolist() == [[3.0]]


@pytest.mark.parametrize("lam", [0.0, 0.95, 1.0])
def test_returns_in_float64_with_ends(lam):
    rng = np.random.default_rng(0)
    reward, v = rng.normal(size=(2, 15, 4))
    decay = 0.99 * rng.choice([0.0, 1.0, 0.97], (15, 4), p=[0.1, 0.6, 0.3])
    found = value(lambda_returns(*(device(x) for x in (reward, decay, v)), lam))
    np.testing.assert_allclose(found, np_returns(reward, decay, v, lam), rtol=1e-5, atol=1e-5)


def test_gradients_flow_through_rewards_decays_and_values():
    rng = np.random.default_rng(1)
    reward, decay, v = rng.normal(size=(3, 4, 2))
    for k in range(3):

        def reference(x, k=k):
            given = [reward, decay, v]
            given[k] = x
            return np_returns(*given, 0.9).sum()

        def compiled(x, k=k):
            given = [device(reward), device(decay), device(v)]
            given[k] = x
            return ops.ReduceSum()(lambda_returns(*given, 0.9))

        assert_gradient(compiled, reference, (reward, decay, v)[k])


def test_weights_are_the_chance_to_be_reached_and_begin_with_the_start_itself():
    found = value(reach_weights(device([1.0, 0.0]), device([[0.5, 0.5], [0.25, 1.0], [1.0, 1.0]])))
    assert found.tolist() == [[1.0, 0.0], [0.5, 0.0], [0.125, 0.0]]
    assert value(reach_weights(device([1.0]), device([[0.5]]))).tolist() == [[1.0]]


@pytest.mark.parametrize("count", [1, 2, 19, 240])
def test_percentiles_are_those_of_numpy(count):
    x = np.random.default_rng(count).normal(0.0, 30.0, count)
    shares = (0.0, 0.05, 0.5, 0.95, 1.0)
    expected = np.percentile(x, [100 * share for share in shares])
    np.testing.assert_allclose(value(percentiles(device(x), shares)), expected, rtol=1e-5, atol=1e-5)


def test_the_scale_is_the_range_of_the_running_means_and_has_a_floor():
    running, low, high = NO_RANGE, 0.0, 0.0
    weight, means = 0.0, np.zeros(2)
    for k, (low, high) in enumerate([(-1.0, 4.0), (-3.0, 9.0), (0.0, 2.0)]):
        running = value(running_range(device(running), device([low, high]), 0.9))
        weight, means = 0.9 * weight + 0.1, 0.9 * means + 0.1 * np.array([low, high])
        expected = (means[1] - means[0]) / weight
        np.testing.assert_allclose(value(width(device(running), 1.0)), [expected], rtol=1e-5)
        # The first update alone counts at first.
        assert k > 0 or expected == pytest.approx(5.0)
    assert value(width(device(running), 100.0)).tolist() == [100.0]
