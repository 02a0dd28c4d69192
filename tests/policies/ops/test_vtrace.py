"""V-trace: by hand, against the recursion of the paper in float64, and where it falls together with other returns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minding.engine.data.returns import gae
from minding.engine.process.runtime import to_device
from minding.policies.ops.values import accumulated, vtrace

STEPS, ENVS = 5, 2
"""Fixed in the property tests: every shape and bound is compiled anew."""


def compiled_vtrace(ratio, td_error, decay, rho_bar=1.0, c_bar=1.0):
    inputs = [to_device(np.asarray(x, np.float32)) for x in (ratio, td_error, decay)]
    return [x.asnumpy() for x in vtrace(*inputs, rho_bar, c_bar)]


def paper(ratio, reward, value, next_value, terminated, cut, gamma, lam=1.0, rho_bar=1.0, c_bar=1.0):
    """Remark 1, step by step from the end, for one environment: (v_t, policy-gradient factor), float64 (T,)."""
    steps = len(reward)
    v, factor = np.zeros(steps), np.zeros(steps)
    for t in reversed(range(steps)):
        rho, c = min(rho_bar, ratio[t]), lam * min(c_bar, ratio[t])
        bootstrap = 0.0 if terminated[t] else next_value[t]
        delta = rho * (reward[t] + gamma * bootstrap - value[t])
        goes_on = t + 1 < steps and not cut[t]
        later = v[t + 1] - value[t + 1] if goes_on else 0.0
        v[t] = value[t] + delta + gamma * c * later
        factor[t] = rho * (reward[t] + gamma * (bootstrap + lam * later) - value[t])
    return v, factor


def test_by_hand():
    # Ratios 2, 0.5, 1; decay 0.5; rho_t 1, 0.5, 1 and c_t the same.
    # y_2 = 4;  y_1 = 0.5 * 2 + 0.5 * 0.5 * 4 = 2;  y_0 = 1 + 0.5 * 1 * 2 = 2
    # A_2 = 4;  A_1 = 0.5 * (2 + 0.5 * 4) = 2;      A_0 = 1 + 0.5 * 2 = 2
    correction, advantage = compiled_vtrace([[2.0], [0.5], [1.0]], [[1.0], [2.0], [4.0]], [[0.5], [0.5], [0.5]])
    assert correction.ravel().tolist() == [2.0, 2.0, 4.0]
    assert advantage.ravel().tolist() == [2.0, 2.0, 4.0]


@pytest.mark.parametrize("steps", [1, 2, 3, 8, 13])
def test_the_scan_solves_its_recursion(steps):
    rng = np.random.default_rng(steps)
    delta, decay = rng.standard_normal((2, steps, 3))
    expected = np.zeros((steps + 1, 3))
    for t in reversed(range(steps)):
        expected[t] = delta[t] + decay[t] * expected[t + 1]
    found = accumulated(to_device(delta.astype(np.float32)), to_device(decay.astype(np.float32)))
    np.testing.assert_allclose(found.asnumpy(), expected[:-1], rtol=1e-4, atol=1e-5)


def numbers(low, high):
    return hnp.arrays(np.float32, (STEPS, ENVS), elements=st.floats(low, high, width=32))


FLAGS = hnp.arrays(np.bool_, (STEPS, ENVS))


@settings(max_examples=50, deadline=None)
@given(numbers(-2.0, 2.0), numbers(-5.0, 5.0), numbers(-5.0, 5.0), numbers(-5.0, 5.0), FLAGS, FLAGS)
def test_it_is_the_recursion_of_the_paper(log_ratio, reward, value, next_value, terminated, truncated):
    gamma, lam, cut = 0.9, 0.8, terminated | truncated
    # Inside a trajectory the successor's value is the next row's.
    next_value[:-1] = np.where(cut[:-1], next_value[:-1], value[1:])
    ratio = np.exp(log_ratio)
    td_error = reward + gamma * (1.0 - terminated) * next_value - value
    correction, advantage = compiled_vtrace(ratio, td_error, gamma * lam * (1.0 - cut), rho_bar=1.5, c_bar=0.75)
    for n in range(ENVS):
        columns = [x[:, n].astype(np.float64) for x in (ratio, reward, value, next_value, terminated, cut)]
        v, factor = paper(*columns, gamma, lam, rho_bar=1.5, c_bar=0.75)
        np.testing.assert_allclose(value[:, n] + correction[:, n], v, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(advantage[:, n], factor, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lam", [1.0, 0.7])
@pytest.mark.parametrize("bound", [1.0, 1e6])
def test_on_policy_it_is_generalized_advantage_estimation(lam, bound):
    rng = np.random.default_rng(0)
    reward, value, next_value = rng.standard_normal((3, 12, 4)).astype(np.float32)
    terminated, truncated = rng.random((2, 12, 4)) < 0.15
    cut, gamma = terminated | truncated, 0.95
    expected = gae(reward, value, next_value, terminated, cut, gamma=gamma, gae_lambda=lam)
    td_error = reward + gamma * (1.0 - terminated) * next_value - value
    ones = np.ones_like(reward)
    correction, advantage = compiled_vtrace(ones, td_error, gamma * lam * (1.0 - cut), bound, bound)
    np.testing.assert_allclose(correction, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-5)


def test_a_ratio_that_overflows_is_bounded():
    correction, advantage = compiled_vtrace([[np.inf]], [[2.0]], [[0.9]])
    assert (correction.item(), advantage.item()) == (2.0, 2.0)
