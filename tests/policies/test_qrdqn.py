"""QR-DQN: its loss by hand and against NumPy, one update against NumPy."""

import numpy as np
import pytest
from action_values import (
    ALTERNATIVES,
    AT,
    LEARNS,
    MASKED,
    PRIORITIZED,
    SIGNATURES,
    STEPS,
    batches_of,
    best_actions,
    check_masked_choice,
    contract_cases,
    disturbed,
    learn,
    make_policy,
    np_atoms,
    np_quantile_huber,
    np_returns,
    params,
)
from fakes import needs_kernels
from numeric import assert_gradient, t, value

from minding.engine.process.runtime import ms, to_device
from minding.policies.ops.distributional import QuantileLoss, midpoints, quantile_huber

SMALL = {"policy.model.n_quantiles": 5}
CONTRACT = contract_cases("qrdqn", n_quantiles=5)
LEARNS = {**LEARNS, "policy.model.n_quantiles": 8}
RESUMES = {}
"""IQN's has all that it keeps, and more draws."""
__all__ = ["ALTERNATIVES", "SIGNATURES"]

QUANTILES = 5


# The loss


@pytest.fixture(params=["plain", pytest.param("kernel", marks=needs_kernels)])
def huber(request):
    """The loss as MindSpore's operations, and as a kernel."""

    def in_one_kernel(quantiles, levels, target, kappa):
        made = QuantileLoss(kappa)
        assert made.fused is not None
        return made(quantiles, levels, target)[0]

    return quantile_huber if request.param == "plain" else in_one_kernel


def test_levels_are_the_middles_of_equal_shares():
    assert midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]
    assert midpoints(1).tolist() == [0.5]


def test_the_quantile_huber_loss_by_hand(huber):
    # Errors target - quantile: of quantile 0 at level 1/4 they are -1/2 and 3, of quantile 2 at 3/4 -5/2 and 1.
    # Shares |tau - 1{u < 0}|: 3/4, 1/4 and 1/4, 3/4; Huber losses 1/8, 5/2 and 2, 1/2.
    loss = huber(t([0.0, 2.0]), t(0.25, 0.75), t([-0.5, 3.0]), 1.0)
    assert value(loss).tolist() == [(0.75 / 8 + 0.25 * 2.5) / 2 + (0.25 * 2.0 + 0.75 * 0.5) / 2]
    # Linear from 2 on: 3 costs 2 (3 - 1), -5/2 costs 2 (5/2 - 1).
    loss = huber(t([0.0, 2.0]), t(0.25, 0.75), t([-0.5, 3.0]), 2.0)
    assert value(loss).tolist() == [(0.75 / 8 + 0.25 * 4.0) / 2 + (0.25 * 3.0 + 0.75 * 0.5) / 2]


@pytest.mark.parametrize(("kappa", "samples"), [(0.3, 7), (1.0, 8), (4.0, 19)])
def test_the_quantile_huber_loss_equals_the_formula_and_has_its_gradient(huber, kappa, samples):
    rng = np.random.default_rng(0)
    target, levels = rng.normal(0.0, 2.0, (4, samples)).astype(np.float32), midpoints(QUANTILES)
    assert_gradient(
        lambda x: huber(x, to_device(levels), to_device(target), kappa).sum(),
        lambda x: np_quantile_huber(x, levels, target, kappa).sum(),
        rng.normal(0.0, 2.0, (4, QUANTILES)),
    )


def test_levels_may_differ_from_row_to_row(huber):
    rng = np.random.default_rng(1)
    quantiles, target, levels = rng.random((3, 2, 4)).astype(np.float32)
    loss = value(huber(t(*quantiles), t(*levels), t(*target), 1.0))
    for b in range(2):
        expected = np_quantile_huber(quantiles[b : b + 1], levels[b], target[b : b + 1], 1.0)
        np.testing.assert_allclose(loss[b], expected[0], rtol=1e-5)


def test_minimising_it_finds_the_quantiles(huber):
    # Of 0, 1, ..., 9 with a small kappa; the slope is 0 between the neighbors of each level.
    target, levels = np.arange(10.0), np.array([0.25, 0.55, 0.85])

    def slope(quantiles):
        loss = ms.grad(lambda x: huber(x, t(*levels), t([*target]), 1e-3).sum())
        return value(loss(t([*quantiles])))[0]

    np.testing.assert_array_less(slope([1.5, 4.5, 7.5]), 0.0)
    np.testing.assert_array_less(0.0, slope([2.5, 5.5, 8.5]))


def test_nan_reaches_the_loss_of_its_row(huber):
    target = to_device(np.arange(18.0, dtype=np.float32).reshape(2, 9))
    quantiles = t([1.0, np.nan], [0.0, 0.0])
    loss = value(huber(quantiles, t(0.25, 0.75), target, 1.0))
    assert np.isnan(loss[0])
    assert np.isfinite(loss[1])


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_kernels)])
def test_no_gradient_flows_into_the_target_and_the_priority_is_the_error_of_the_mean(fused):
    loss_of = QuantileLoss(1.0)
    if not fused:
        loss_of.fused = None
    quantiles, target = t([1.0, 3.0], [0.0, 0.0]), t([4.0, 6.0], [-1.0, 1.0])
    gradient = ms.grad(lambda x: loss_of(quantiles, t(0.25, 0.75), x)[0].sum())(target)
    assert value(gradient).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    loss, mean, priority = loss_of(quantiles, t(0.25, 0.75), target)
    assert value(mean).tolist() == [2.0, 0.0]
    # The second row is right on the average.
    assert value(priority).tolist() == [3.0, 0.0]
    assert value(loss)[1] > 0.0


# The update


@pytest.fixture(scope="module")
def built(tiny_config):
    """Policies with the same start: double; with the target's choice, dueling and another kappa; and prioritized."""
    plain = {"policy.learn.double": False, "policy.model.dueling": True, "policy.learn.kappa": 0.5}
    kinds = {"double": {}, "plain": plain, "prioritized": PRIORITIZED}
    return {kind: make_policy(tiny_config, "qrdqn", **SMALL, **changes) for kind, changes in kinds.items()}


@pytest.fixture(scope="module")
def batch_of(built):
    return batches_of(built)


@pytest.fixture
def policies(built):
    yield from disturbed(built)


def quantiles_of(p, part, obs):
    return np_atoms(p, part, obs, QUANTILES)


def means(p, part, obs):
    return quantiles_of(p, part, obs).mean(axis=2)


@pytest.mark.parametrize(
    "kind",
    ["double", pytest.param("plain", marks=pytest.mark.slow), pytest.param("prioritized", marks=pytest.mark.slow)],
)
def test_the_update_computes_the_loss_of_its_formula(policies, batch_of, kind):
    p = params(policies[kind])
    rows, weight, output = learn(policies[kind], batch_of, kind)
    chooser, next_obs = "target" if kind == "plain" else "net", rows["next_obs"]
    best = best_actions(means(p, chooser, next_obs), means(p, "target", next_obs), kind != "plain")
    y = np_returns(rows, quantiles_of(p, "target", next_obs)[AT, best])
    chosen = quantiles_of(p, "net", rows["obs"])[AT, rows["action"]]
    loss = np_quantile_huber(chosen, midpoints(QUANTILES), y, 0.5 if kind == "plain" else 1.0)
    assert output.metrics["loss"] == pytest.approx((weight * loss).mean(), rel=1e-5)
    assert output.metrics["q_value"] == pytest.approx(chosen.mean(), rel=1e-5, abs=1e-6)
    assert output.metrics["grad_norm"] > 0.0
    if kind == "prioritized":
        errors = np.abs(y.mean(axis=1) - chosen.mean(axis=1))
        np.testing.assert_allclose(output.priorities, [errors] * STEPS, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("double", [True, False])
def test_the_next_action_is_the_best_legal_one(tiny_config, double):
    policy = make_policy(tiny_config, "qrdqn", MASKED, **SMALL)
    obs, target, best = check_masked_choice(policy, double, means)
    expected = quantiles_of(params(policy), "target", obs)[np.arange(len(obs)), best]
    np.testing.assert_allclose(value(target), expected, atol=1e-5)


def test_the_values_that_decide_are_the_means_of_the_quantiles(policies):
    policy = policies["plain"]
    obs = np.random.default_rng(3).standard_normal((20, 4)).astype(np.float32)
    expected = means(params(policy), "net", obs)
    np.testing.assert_allclose(policy.actors["eval"].outputs(obs)[0], expected, atol=1e-5)
    assert np.array_equal(policy.eval_mode.forward(obs), expected.argmax(axis=1))
