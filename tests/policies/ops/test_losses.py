"""Losses in operators, where no kernel and no update is compared with float64: numbers by hand."""

import numpy as np
import pytest
from numeric import t, value

from minding.engine.data import returns
from minding.policies.ops.policy_gradient import row_mean
from minding.policies.ops.values import rescaled, smaller, unscaled, vtrace
from minding.policies.ppo import ppo_loss

ACTOR_CRITIC = {"value_weight": 0.5, "entropy_weight": 0.01}
PPO = {**ACTOR_CRITIC, "clip_ratio": 0.2, "value_clip": True}

PPO_ROWS = ("log_prob", "advantage", "return", "value")


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


def test_a_ratio_that_overflows_is_bounded():
    correction, advantage = vtrace(t([np.inf]), t([2.0]), t([0.9]), 1.0, 1.0)
    assert (float(correction), float(advantage)) == (2.0, 2.0)
