"""V-trace: by hand, against the recursion of the paper in float64, and where it falls together with other returns."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minding.engine.process.runtime import to_device
from minding.policies.ops.values import vtrace

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


def test_a_ratio_that_overflows_is_bounded():
    correction, advantage = compiled_vtrace([[np.inf]], [[2.0]], [[0.9]])
    assert (correction.item(), advantage.item()) == (2.0, 2.0)
