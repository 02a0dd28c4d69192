"""C51: projection and loss by hand and against NumPy, one update against NumPy."""

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
    np_log_softmax,
    np_project,
    np_returns,
    params,
    random_rows,
)
from numeric import assert_gradient, t, value

from minding.engine.process.runtime import ms, to_device
from minding.policies.networks.return_distribution import SupportMean
from minding.policies.ops.distributional import beyond, cross_entropy, moved, project

SMALL = {"policy.model.n_atoms": 7, "policy.model.v_min": -2.0, "policy.model.v_max": 1.0}
CONTRACT = contract_cases("c51", n_atoms=7, v_min=-2.0, v_max=1.0)
LEARNS = {**LEARNS, "policy.model.n_atoms": 21}
RESUMES = {}
"""Rainbow's has its network, its target and its priorities."""
__all__ = ["ALTERNATIVES", "SIGNATURES"]

ATOMS = 7
SUPPORT = np.linspace(-2.0, 1.0, ATOMS)


# Projection


def projected(probability, positions, count=3):
    places = to_device(np.arange(count, dtype=np.float32))
    return value(project(t(*probability), t(*positions), places)).tolist()


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        # On the atoms, in order and not.
        ([0.0, 1.0, 2.0], [0.5, 0.25, 0.25]),
        ([2.0, 2.0, 0.0], [0.25, 0.0, 0.75]),
        # Between them: 1/4 of the way and in the middle.
        ([0.25, 1.5, 1.5], [0.375, 0.125 + 0.25, 0.25]),
        # Clipped at both ends, a little and far outside.
        ([-0.5, 2.5, 1.0], [0.5, 0.25, 0.25]),
        ([1e6, -1e6, 0.5], [0.25 + 0.125, 0.125, 0.5]),
        # After a true end all of it lies at the reward.
        ([0.75, 0.75, 0.75], [0.25, 0.75, 0.0]),
        ([2.0, 2.0, 2.0], [0.0, 0.0, 1.0]),
    ],
)
def test_the_projection_by_hand(positions, expected):
    assert projected([[0.5, 0.25, 0.25]], [positions]) == [expected]


@pytest.mark.parametrize(("low", "high", "count"), [(-10.0, 10.0, 51), (9999.0, 10000.0, 51), (-3e5, -2e5, 21)])
def test_atoms_lie_where_they_do_in_float64_however_far_from_0_the_support_is(low, high, count):
    support, mean = np.linspace(low, high, count), SupportMean(low, high, count)
    decay = np.float32([0.99, 0.9801, 0.0])
    target = np.array([low + 0.3 * (high - low), high, low + 0.51 * (high - low)])
    reward = (target - decay.astype(np.float64) * target).astype(np.float32)
    found = value(moved(t(*reward), t(*decay), mean.low, mean.spacing, to_device(np.arange(count, dtype=np.float32))))
    returns = reward.astype(np.float64)[:, None] + decay.astype(np.float64)[:, None] * support
    # A reward of 100,000 is itself known to 0.004 only.
    np.testing.assert_allclose(found, (returns - low) / ((high - low) / (count - 1)), atol=0.02)


def test_the_projection_equals_algorithm_1_and_keeps_sum_and_mean():
    rng = np.random.default_rng(0)
    probability = rng.dirichlet(np.ones(9), 50)
    x = rng.normal(-0.5, 0.8, (50, 9))
    positions = (x - SUPPORT[0]) / 0.5
    places = to_device(np.arange(ATOMS, dtype=np.float32))
    found = value(project(t(*probability), t(*positions), places))
    np.testing.assert_allclose(found, np_project(probability, x, SUPPORT), atol=1e-6)
    np.testing.assert_allclose(found.sum(axis=1), np.ones(50), atol=1e-6)
    np.testing.assert_allclose(found @ SUPPORT, (probability * np.clip(x, -2.0, 1.0)).sum(axis=1), atol=1e-5)


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf])
def test_a_return_that_is_not_finite_is_not_hidden_by_the_bounds(x):
    moved = np.array(projected([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]], [[x, 1.0, 2.0], [0.0, 1.0, 2.0]]))
    assert np.isnan(moved[0]).all()
    assert moved[1].tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ([0.0, 1.0, 2.0], 0.0),
        ([-0.5, 1.0, 2.5], 0.75),
        # On the last atom but for rounding, and an infinite one.
        ([2.0002, 0.0, 2.0], 0.0),
        ([0.5, np.inf, -np.inf], 0.5),
    ],
)
def test_the_probability_beyond_the_support_by_hand(positions, expected):
    places = to_device(np.arange(3, dtype=np.float32))
    assert value(beyond(t([0.5, 0.25, 0.25]), t(positions), places)).tolist() == [expected]


# The loss


def test_the_cross_entropy_by_hand():
    # Probabilities 1/4 and 3/4; the second row is predicted exactly.
    loss, excess = cross_entropy(t([0.0, np.log(3.0)], [0.0, np.log(3.0)]), t([1.0, 0.0], [0.25, 0.75]))
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    # MindSpore's logarithm is off by 2e-6.
    np.testing.assert_allclose(value(loss), [np.log(4.0), entropy], atol=1e-5)
    np.testing.assert_allclose(value(excess), [np.log(4.0), 0.0], atol=1e-5)
    assert (value(excess) >= 0.0).all()


def test_the_cross_entropy_has_its_gradient_and_none_flows_into_the_target():
    rng = np.random.default_rng(1)
    target, logits = rng.dirichlet(np.ones(5), 4), 3.0 * rng.standard_normal((4, 5))
    assert_gradient(
        lambda x: cross_entropy(x, t(*target))[0].sum(),
        lambda x: -(target.astype(np.float32) * np_log_softmax(x)).sum(),
        logits,
    )
    gradient = ms.grad(lambda x: cross_entropy(t(*logits), x)[0].sum())(t(*target))
    assert not value(gradient).any()
    gradient = ms.grad(lambda x: cross_entropy(x, t(*target))[1].sum())(t(*logits))
    assert not value(gradient).any()


# The update


@pytest.fixture(scope="module")
def built(tiny_config):
    """Policies with the same start: double; with the target's choice and dueling; and prioritized."""
    plain = {"policy.learn.double": False, "policy.model.dueling": True}
    kinds = {"double": {}, "plain": plain, "prioritized": PRIORITIZED}
    return {kind: make_policy(tiny_config, "c51", **SMALL, **changes) for kind, changes in kinds.items()}


@pytest.fixture(scope="module")
def batch_of(built):
    return batches_of(built)


@pytest.fixture
def policies(built):
    yield from disturbed(built)


def log_probability(p, part, obs):
    return np_log_softmax(np_atoms(p, part, obs, ATOMS))


def means(p, part, obs):
    return np.exp(log_probability(p, part, obs)) @ SUPPORT


@pytest.mark.parametrize(
    "kind",
    ["double", pytest.param("plain", marks=pytest.mark.slow), pytest.param("prioritized", marks=pytest.mark.slow)],
)
def test_the_update_computes_the_loss_of_its_formula(policies, batch_of, kind):
    p = params(policies[kind])
    rows, weight, output = learn(policies[kind], batch_of, kind)
    chooser, next_obs = "target" if kind == "plain" else "net", rows["next_obs"]
    best = best_actions(means(p, chooser, next_obs), means(p, "target", next_obs), kind != "plain")
    next_probability = np.exp(log_probability(p, "target", next_obs)[AT, best])
    m = np_project(next_probability, np_returns(rows, SUPPORT), SUPPORT)
    log_p = log_probability(p, "net", rows["obs"])[AT, rows["action"]]
    loss = -(m * log_p).sum(axis=1)
    assert output.metrics["loss"] == pytest.approx((weight * loss).mean(), rel=1e-5)
    assert output.metrics["q_value"] == pytest.approx((np.exp(log_p) @ SUPPORT).mean(), rel=1e-5)
    assert output.metrics["grad_norm"] > 0.0
    returns = np_returns(rows, SUPPORT)
    beyond_it = (next_probability * ((returns < SUPPORT[0]) | (returns > SUPPORT[-1]))).sum(axis=1)
    assert output.metrics["clipped_mass"] == pytest.approx(beyond_it.mean(), rel=1e-5)
    if kind == "prioritized":
        excess = loss + np.where(m > 0.0, m * np.log(np.maximum(m, 1e-300)), 0.0).sum(axis=1)
        np.testing.assert_allclose(output.priorities, [excess] * STEPS, rtol=1e-4, atol=1e-5)


def test_a_support_that_is_too_small_is_told_once(policies, batch_of, caplog, monkeypatch):
    policy, values = policies["double"], random_rows(policies["double"])
    monkeypatch.setattr(policy, "_warned_of_clipping", False)
    for scale, told in ((0.0, 0), (100.0, 1), (100.0, 1)):
        batch = batch_of("double", {**values, "reward": scale * np.abs(values["reward"])})
        share = policy.learn_mode.forward(batch).metrics["clipped_mass"]
        assert (share > 0.2) == (scale > 0.0)
        warnings = [each.getMessage() for each in caplog.records if "beyond the support from -2 to 1" in each.message]
        assert len(warnings) == told
    assert "set policy.model.v_min and policy.model.v_max" in warnings[0]


@pytest.mark.parametrize("double", [True, False])
def test_the_next_action_is_the_best_legal_one(tiny_config, double):
    policy = make_policy(tiny_config, "c51", MASKED, **SMALL)
    obs, (target, clipped), best = check_masked_choice(policy, double, means)
    expected = log_probability(params(policy), "target", obs)[np.arange(len(obs)), best]
    np.testing.assert_allclose(value(target), np.exp(expected), atol=1e-5)
    np.testing.assert_allclose(value(clipped), 0.0)


def test_the_values_that_decide_are_the_means_of_the_distributions(policies):
    policy = policies["plain"]
    obs = np.random.default_rng(3).standard_normal((20, 4)).astype(np.float32)
    expected = means(params(policy), "net", obs)
    np.testing.assert_allclose(policy.actors["eval"].outputs(obs)[0], expected, atol=1e-5)
    assert np.array_equal(policy.eval_mode.forward(obs), expected.argmax(axis=1))
