"""Losses in operators, where no kernel and no update is compared with float64: numbers by hand, and gradients."""

import numpy as np
import pytest
from numeric import assert_gradient, t, value

from minding.engine.data import returns
from minding.engine.process.runtime import ms, to_device
from minding.policies.impala import impala_loss
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.values import rescaled, smaller, unscaled
from minding.policies.ppo import ppo_loss

ACTOR_CRITIC = {"value_weight": 0.5, "entropy_weight": 0.01}
IMPALA = {**ACTOR_CRITIC, "gamma": 0.5, "vtrace_lambda": 1.0, "rho_bar": 1.0, "c_bar": 1.0}
PPO = {**ACTOR_CRITIC, "clip_ratio": 0.2, "value_clip": True}


PPO_ROWS = ("log_prob", "advantage", "return", "value")
IMPALA_ROWS = ("log_prob", "reward", "terminated", "cut", "valid", "next_value")


def named(names, tensors):
    return dict(zip(names, tensors, strict=True))


def test_rows_that_do_not_count_leave_the_mean():
    numbers = t(1.0, 2.0, 6.0, 100.0)
    assert float(row_mean(numbers, {})) == 27.25
    assert float(row_mean(numbers, {"valid": t(1.0, 1.0, 1.0, 0.0)})) == 3.0
    assert float(row_mean(numbers, {"valid": t(0.0, 0.0, 0.0, 0.0)})) == 0.0
    assert float(row_mean(t(4.0).sum(), {"valid": t(1.0, 0.0)})) == 4.0


def test_rescaled_returns_by_hand_and_their_inverse():
    x = t(0.0, 3.0, -8.0, 1e-3, 300.0, -1e4)
    # sqrt(4) - 1 and 1 - sqrt(9), and a thousandth of the number.
    assert value(rescaled(x))[:3].tolist() == pytest.approx([0.0, 1.003, -2.008])
    for h, inverse in ((rescaled, unscaled), (returns.rescaled, returns.unscaled)):
        numbers = x if h is rescaled else value(x).astype(np.float64)
        np.testing.assert_allclose(inverse(h(numbers)), numbers, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(rescaled(x)), returns.rescaled(value(x).astype(np.float64)), rtol=1e-6)


def test_the_smaller_of_two_numbers_is_nan_if_one_of_them_is():
    found = smaller(t(1.0, np.nan, 3.0, np.nan), t(2.0, 2.0, np.nan, np.nan)).asnumpy()
    assert np.array_equal(found, [1.0, np.nan, np.nan, np.nan], equal_nan=True)


def test_without_the_value_clip_the_error_is_the_plain_one():
    batch = named(PPO_ROWS, (t(0.0), t(0.0), t(0.0), t(5.0)))

    def value_loss(cfg):
        return float(ppo_loss(t(0.0), t(0.0), t(1.0), batch, cfg)[2])

    # The clipped value 4.8 would be worse than 1.
    assert value_loss(PPO) == pytest.approx(0.5 * 4.8**2)
    assert value_loss({**PPO, "value_clip": False}) == 0.5


def test_impala_loss_has_its_gradients_and_its_targets_have_none():
    rng = np.random.default_rng(3)
    log_prob, old_log_prob, reward, state_value, next_value = rng.standard_normal((5, 6, 1))
    ratio = np.exp(np.minimum(log_prob - old_log_prob, 0.0))
    correction, later = np.zeros((6, 1)), np.zeros((7, 1))
    for i in reversed(range(6)):
        error = reward[i] + 0.5 * next_value[i] - state_value[i]
        later[i] = correction[i] = ratio[i] * (error + 0.5 * later[i + 1])
    # With both bounds the same, the two are one.
    target, advantage = state_value + correction, correction
    zeros = np.zeros((6, 1))
    columns = (old_log_prob, reward, zeros, zeros, zeros + 1, next_value)
    batch = named(IMPALA_ROWS, [to_device(x.astype(np.float32)) for x in columns])
    entropy = to_device(zeros.astype(np.float32))

    def reference(log_prob, state_value):
        return -(advantage * log_prob).mean() + 0.25 * ((state_value - target) ** 2).mean()

    fixed = [to_device(x.astype(np.float32)) for x in (log_prob, state_value)]
    assert_gradient(
        lambda x: impala_loss(x, entropy, fixed[1], batch, IMPALA)[0], lambda x: reference(x, state_value), log_prob
    )
    assert_gradient(
        lambda x: impala_loss(fixed[0], entropy, x, batch, IMPALA)[0], lambda x: reference(log_prob, x), state_value
    )
    entropy_gradient = ms.grad(lambda x: impala_loss(fixed[0], x, fixed[1], batch, IMPALA)[0])(entropy)
    np.testing.assert_allclose(value(entropy_gradient), np.full((6, 1), -0.01 / 6), rtol=1e-5)
