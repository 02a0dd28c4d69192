"""Losses of policy gradients: numbers worked out by hand, and gradients against finite differences in float64."""

import math

import numpy as np
import pytest
from numeric import assert_gradient, t, value

from minding.engine.process.runtime import ms
from minding.policies.ops.policy_gradient import ADVANTAGE_METRICS, advantage_loss, policy_loss, row_mean

WEIGHTS = {"value_weight": 0.5, "entropy_weight": 0.01}
ROWS = ("log_prob", "advantage", "return")


def named(*tensors):
    return dict(zip(ROWS, tensors, strict=True))


def test_rows_that_do_not_count_leave_the_mean():
    numbers = t(1.0, 2.0, 6.0, 100.0)
    assert float(row_mean(numbers, {})) == 27.25
    assert float(row_mean(numbers, {"valid": t(1.0, 1.0, 1.0, 0.0)})) == 3.0
    assert float(row_mean(numbers, {"valid": t(0.0, 0.0, 0.0, 0.0)})) == 0.0
    assert float(row_mean(t(4.0).sum(), {"valid": t(1.0, 0.0)})) == 4.0


def test_the_policy_loss_by_hand_and_none_of_its_gradient_flows_into_the_advantage():
    # -(2 * -1 - 3 * -2) / 2
    assert float(policy_loss(t(-1.0, -2.0), t(2.0, -3.0), {})) == -2.0
    gradient = ms.grad(lambda x: policy_loss(t(-1.0, -2.0), x, {}))(t(2.0, -3.0))
    assert value(gradient).tolist() == [0.0, 0.0]


def test_the_advantage_loss_by_hand():
    # -(2 * -1 - 1 * -2) / 2 = 0; errors 2 and -1: (4 + 1) / 2 / 2.
    batch = named(t(-1.0, -2.0 - math.log(2.0)), t(2.0, -1.0), t(3.0, 0.0))
    results = advantage_loss(t(-1.0, -2.0), t(0.5, 1.5), t(1.0, 1.0), batch, WEIGHTS)
    assert {name: float(x) for name, x in zip(ADVANTAGE_METRICS, results, strict=True)} == {
        "loss": pytest.approx(0.625 - 0.01),
        "policy_loss": 0.0,
        "value_loss": 1.25,
        "entropy": 1.0,
        # Ratios 1 and 2.
        "approx_kl": pytest.approx((1.0 - math.log(2.0)) / 2, abs=1e-6),
    }


@pytest.mark.parametrize("part", [0, 1, 2])
def test_the_advantage_loss_has_its_gradients(part):
    rng = np.random.default_rng(2)
    old, advantage, target, *values = rng.standard_normal((6, 9))
    valid = (np.arange(9) % 4 > 0).astype(np.float64)
    batch = {**named(*(t(*x) for x in (old, advantage, target))), "valid": t(*valid)}

    def replaced(x):
        return [*values[:part], x, *values[part + 1 :]]

    def reference(log_prob, entropy, state_value):
        rows = -advantage * log_prob + 0.25 * (state_value - target) ** 2 - 0.01 * entropy
        return rows[valid > 0].mean()

    assert_gradient(
        lambda x: advantage_loss(*[v if v is x else t(*v) for v in replaced(x)], batch, WEIGHTS)[0],
        lambda x: reference(*replaced(x)),
        values[part],
    )
