"""Losses: numbers worked out by hand, and gradients against finite differences in float64."""

import math

import numpy as np
import pytest
from numeric import assert_gradient, t, value

from minding.engine.data import returns
from minding.engine.process.runtime import ms, to_device
from minding.policies.impala import impala_loss
from minding.policies.ops.policy_gradient import ADVANTAGE_METRICS, SURROGATE_METRICS
from minding.policies.ops.values import (
    chosen_value,
    critic_loss,
    huber,
    rescaled,
    smaller,
    soft_policy_loss,
    soft_target,
    unscaled,
    value_loss,
    value_target,
)
from minding.policies.ppo import ppo_loss

ACTOR_CRITIC = {"value_weight": 0.5, "entropy_weight": 0.01}
IMPALA = {**ACTOR_CRITIC, "gamma": 0.5, "vtrace_lambda": 1.0, "rho_bar": 1.0, "c_bar": 1.0}
PPO = {**ACTOR_CRITIC, "clip_ratio": 0.2, "value_clip": True}


PPO_ROWS = ("log_prob", "advantage", "return", "value")
IMPALA_ROWS = ("log_prob", "reward", "terminated", "cut", "valid", "next_value")


def named(names, tensors):
    return dict(zip(names, tensors, strict=True))


def test_huber_by_hand():
    assert value(huber(t(0.0, 0.5, -1.0, 3.0, -4.0))).tolist() == [0.0, 0.125, 0.5, 2.5, 3.5]


def np_huber(error):
    size = np.abs(error)
    return np.where(size <= 1, 0.5 * error**2, size - 0.5)


def test_huber_has_its_gradient():
    assert_gradient(lambda e: huber(e).sum(), lambda e: np_huber(e).sum(), [-3.0, -0.9, -0.1, 0.2, 0.95, 1.1, 7.0])


def test_the_chosen_value_is_that_of_the_action():
    q = to_device(np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    assert value(chosen_value(q, t(2, 0, dtype=np.int32))).tolist() == [3.0, 4.0]


def test_rescaled_returns_by_hand_and_their_inverse():
    x = t(0.0, 3.0, -8.0, 1e-3, 300.0, -1e4)
    # sqrt(4) - 1 and 1 - sqrt(9), and a thousandth of the number.
    assert value(rescaled(x))[:3].tolist() == pytest.approx([0.0, 1.003, -2.008])
    for h, inverse in ((rescaled, unscaled), (returns.rescaled, returns.unscaled)):
        numbers = x if h is rescaled else value(x).astype(np.float64)
        np.testing.assert_allclose(inverse(h(numbers)), numbers, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(rescaled(x)), returns.rescaled(value(x).astype(np.float64)), rtol=1e-6)


def test_the_value_loss_by_hand():
    q = to_device(np.array([[1, 5], [2, 0]], np.float32))
    # Errors 5 - 4.5 = 0.5 and 2 - 5 = -3.
    loss, chosen, error = value_loss(q, t(1, 0, dtype=np.int32), t(4.5, 5.0))
    assert [value(x).tolist() for x in (loss, chosen, error)] == [[0.125, 2.5], [5.0, 2.0], [0.5, 3.0]]


def test_the_value_loss_has_its_gradient_and_none_flows_into_the_target():
    action, target = np.array([1, 0, 2]), np.array([0.3, -2.0, 0.9])
    assert_gradient(
        lambda q: value_loss(q, t(*action, dtype=np.int32), t(*target))[0].sum(),
        lambda q: np_huber(q[np.arange(3), action] - target).sum(),
        np.random.default_rng(0).standard_normal((3, 3)),
    )
    q = to_device(np.ones((3, 3), np.float32))
    gradient = ms.grad(lambda target: value_loss(q, t(*action, dtype=np.int32), target)[0].sum())(t(*target))
    assert value(gradient).tolist() == [0.0, 0.0, 0.0]


def test_the_soft_target_by_hand():
    # 1 + 0.5 (min(3, 2) - 0.1 * 4) and, at the end of an episode, the reward.
    q = to_device(np.array([[3.0, 9.0], [2.0, 9.0]], np.float32))
    y = soft_target(t(1.0, 2.0), t(0.5, 0.5), t(0.0, 1.0), q, t(4.0, 9.0), t(0.1))
    np.testing.assert_allclose(value(y), [1.8, 2.0], rtol=1e-6)
    # Without entropy 1 + 0.5 * min(3, 2).
    y = value_target(t(1.0, 2.0), t(0.5, 0.5), t(0.0, 1.0), q)
    np.testing.assert_allclose(value(y), [2.0, 2.0], rtol=1e-6)


def test_the_loss_of_a_soft_policy_by_hand():
    # (0.1 * 2 - 1 + 0.1 * 4 - 3) / 2
    q = to_device(np.array([[1.0, 5.0], [2.0, 3.0]], np.float32))
    loss, log_prob = soft_policy_loss(q, t(2.0, 4.0), t(0.1))
    assert (float(loss), float(log_prob)) == (pytest.approx(-1.7), 3.0)


def test_the_smaller_of_two_numbers_is_nan_if_one_of_them_is():
    found = smaller(t(1.0, np.nan, 3.0, np.nan), t(2.0, 2.0, np.nan, np.nan)).asnumpy()
    assert np.array_equal(found, [1.0, np.nan, np.nan, np.nan], equal_nan=True)


def test_the_loss_of_a_soft_policy_has_its_gradient():
    q, log_prob = np.array([[1.0, 5.0], [2.0, 3.0], [4.0, 6.0]]), np.array([2.0, -4.0])
    assert_gradient(
        lambda q: soft_policy_loss(q, t(*log_prob), t(0.1))[0], lambda q: (0.1 * log_prob - q.min(axis=0)).mean(), q
    )
    fixed = to_device(q.astype(np.float32))
    assert_gradient(
        lambda x: soft_policy_loss(fixed, x, t(0.1))[0], lambda x: (0.1 * x - q.min(axis=0)).mean(), log_prob
    )


def test_the_loss_of_critics_by_hand():
    # Half squares of (1, 2), (3, 0) and (0, 1): (0.5 + 4.5 + 0 + 2 + 0 + 0.5) / 2.
    q = to_device(np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0]], np.float32))
    loss, mean = critic_loss(q, t(0.0, 0.0))
    assert (float(loss), float(mean)) == (3.75, 1.5)


def test_the_loss_of_critics_has_its_gradient():
    target = np.array([0.2, 2.0])
    assert_gradient(
        lambda q: critic_loss(q, t(*target))[0],
        lambda q: (0.5 * (q - target) ** 2).sum(axis=0).mean(),
        np.array([[1.0, 3.0], [0.5, -1.0]]),
    )


def test_ppo_loss_by_hand():
    # Ratios 1.5 (clipped to 1.2, advantage 1) and 1.5 (not clipped, advantage -1); values 1.0 -> 0.2 after the clip
    # and 0.1 -> 0.1 with targets 0: max(1, 0.04) and 0.01; entropy 0.5.
    old = math.log(0.2)
    batch = named(PPO_ROWS, (t(old, old), t(1.0, -1.0), t(0.0, 0.0), t(0.0, 0.0)))
    loss, *others = map(float, ppo_loss(t(math.log(0.3), math.log(0.3)), t(0.5, 0.5), t(1.0, 0.1), batch, PPO))
    assert named(SURROGATE_METRICS[1:], others) == {
        "policy_loss": pytest.approx((-1.2 + 1.5) / 2, abs=1e-5),
        "value_loss": pytest.approx(0.5 * (1.0 + 0.01) / 2),
        "entropy": 0.5,
        "approx_kl": pytest.approx(0.5 - math.log(1.5), abs=1e-5),
        "clip_fraction": 1.0,
    }
    assert loss == pytest.approx(0.15 + 0.5 * 0.2525 - 0.005, abs=1e-5)


def test_without_the_value_clip_the_error_is_the_plain_one():
    batch = named(PPO_ROWS, (t(0.0), t(0.0), t(0.0), t(5.0)))

    def value_loss(cfg):
        return float(ppo_loss(t(0.0), t(0.0), t(1.0), batch, cfg)[2])

    # The clipped value 4.8 would be worse than 1.
    assert value_loss(PPO) == pytest.approx(0.5 * 4.8**2)
    assert value_loss({**PPO, "value_clip": False}) == 0.5


def np_ppo(log_prob, value, old_log_prob, advantage, target, old_value):
    ratio = np.exp(log_prob - old_log_prob)
    policy = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 0.8, 1.2)).mean()
    clipped = old_value + np.clip(value - old_value, -0.2, 0.2)
    return policy + 0.25 * np.maximum((value - target) ** 2, (clipped - target) ** 2).mean()


def test_ppo_loss_has_its_gradients():
    rng = np.random.default_rng(1)
    old_log_prob, advantage, target, old_value = rng.standard_normal((4, 16))
    log_prob, state_value = old_log_prob + rng.normal(0, 0.3, 16), old_value + rng.normal(0, 0.3, 16)
    batch = named(PPO_ROWS, [t(*x) for x in (old_log_prob, advantage, target, old_value)])
    entropy = t(*np.zeros(16))
    assert_gradient(
        lambda x: ppo_loss(x, entropy, t(*state_value), batch, PPO)[0],
        lambda x: np_ppo(x, state_value, old_log_prob, advantage, target, old_value),
        log_prob,
    )
    assert_gradient(
        lambda x: ppo_loss(t(*log_prob), entropy, x, batch, PPO)[0],
        lambda x: np_ppo(log_prob, x, old_log_prob, advantage, target, old_value),
        state_value,
    )
    entropy_gradient = ms.grad(lambda x: ppo_loss(t(*log_prob), x, t(*state_value), batch, PPO)[0])(entropy)
    np.testing.assert_allclose(value(entropy_gradient), np.full(16, -0.01 / 16), rtol=1e-5)


def column(*numbers):
    return to_device(np.array(numbers, np.float32)[:, None])


def test_impala_loss_by_hand():
    # Gamma 0.5, ratios 2 and 0.5, then a true end. Errors: 1 + 0.5 * 4 - 2 = 1 and 3 - 4 = -1.
    # Row 1: rho -1 / 2, v - V = A = -0.5. Row 0: v - V = A = 1 + 0.5 * -0.5 = 0.75. Row 2 is a reset.
    old = column(math.log(0.1), math.log(0.4), 0.0)
    log_prob = column(math.log(0.2), math.log(0.2), 0.0)
    flags = column(0.0, 1.0, 0.0), column(0.0, 1.0, 1.0), column(1.0, 1.0, 0.0)
    batch = named(IMPALA_ROWS, (old, column(1.0, 3.0, 100.0), *flags, column(4.0, 50.0, 50.0)))
    results = impala_loss(log_prob, column(0.5, 1.5, 9.0), column(2.0, 4.0, 50.0), batch, IMPALA)
    loss, *others = map(float, results)
    policy_loss, value_loss = -(0.75 - 0.5) * math.log(0.2) / 2, 0.5 * (0.75**2 + 0.5**2) / 2
    assert named((*ADVANTAGE_METRICS[1:], "rho"), others) == {
        "policy_loss": pytest.approx(policy_loss, abs=1e-5),
        "value_loss": pytest.approx(value_loss),
        "entropy": 1.0,
        "approx_kl": pytest.approx((1.0 - math.log(2.0) - 0.5 + math.log(2.0)) / 2, abs=1e-5),
        "rho": pytest.approx(0.75),
    }
    assert loss == pytest.approx(policy_loss + 0.5 * value_loss - 0.01, abs=1e-5)


def test_impala_loss_of_resets_only_is_zero():
    zeros, ones = column(0.0, 0.0), column(1.0, 1.0)
    batch = named(IMPALA_ROWS, (zeros, ones, zeros, ones, zeros, ones))
    assert float(impala_loss(ones, ones, ones, batch, IMPALA)[0]) == 0.0


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
