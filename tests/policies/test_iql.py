"""IQL: one update against float64 NumPy, gradients by finite differences, expectiles in closed form."""

import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import finite_differences, gradients, linear_head, moved, normal, own_value, params, value
from numeric import assert_gradient
from recorded_transitions import (
    batch_of,
    bootstrapped,
    build,
    check_ends,
    check_steps_in_a_call,
    check_targets_follow,
    disturbed,
    part,
    random_rows,
)

from minding.policies.iql import expectile_loss
from minding.policies.ops import primitives

CONTRACT = {"iql": (VECTOR, space_of(2, 2), {"policy.model.normalize_obs": True})}
RESUMES = {"IQL, observations normalized": ("Pendulum-v1", ("policy.model.normalize_obs=true",))}

EXPECTILE, SCALE, LIMIT = 0.8, 3.0, 2.0


@pytest.fixture(scope="module")
def built(tiny_config):
    return build(tiny_config, "iql", expectile=EXPECTILE, weight_scale=SCALE, weight_limit=LIMIT)


@pytest.fixture
def policy(built):
    yield from disturbed(built[0], built[0].root.targets)


@pytest.fixture
def batches(built):
    return built[1]


def smaller(p, part, rows):
    return np.minimum(*(value(p, f"{part}.{q}", rows["action"], rows["obs"]) for q in ("q1", "q2")))


def target_of(p, rows):
    return bootstrapped(rows, own_value(p, "value", rows["next_obs"]))


def advantage_of(p, rows):
    return smaller(p, "targets", rows) - own_value(p, "value", rows["obs"])


def weights_of(p, rows):
    return np.minimum(np.exp(SCALE * advantage_of(p, rows)), LIMIT)


def critic_loss(p, rows, target):
    errors = [value(p, f"critics.{q}", rows["action"], rows["obs"]) - target for q in ("q1", "q2")]
    return 0.5 * np.mean(errors[0] ** 2 + errors[1] ** 2)


def actor_loss(p, rows, weight):
    log_prob, _ = normal(linear_head(p, "net", "linear", rows["obs"]), p["net.head.log_std"], rows["action"])
    return -(weight * log_prob).mean()


def value_loss(p, rows, q):
    u = q - own_value(p, "value", rows["obs"])
    return (np.where(u < 0, 1 - EXPECTILE, EXPECTILE) * u**2).mean()


def test_losses_targets_and_weights_are_those_of_the_formulas(policy, batches):
    rows, p = random_rows(policy), params(policy)
    seen = part(rows, 0)
    weight = weights_of(p, seen)
    # What the formulas treat apart is in the batch.
    assert 0 < (weight == LIMIT).sum() < len(weight)
    assert 0 < (advantage_of(p, seen) < 0).sum() < len(weight)
    metrics = policy.learn_mode.forward(batch_of(batches, rows)).metrics
    expected = {
        "critic_loss": critic_loss(p, seen, target_of(p, seen)),
        "actor_loss": actor_loss(p, seen, weight),
        "value_loss": value_loss(p, seen, smaller(p, "targets", seen)),
        "value": own_value(p, "value", seen["obs"]).mean(),
        "q_value": value(p, "critics.q1", seen["action"], seen["obs"]).mean(),
        "advantage": advantage_of(p, seen).mean(),
        "weight": weight.mean(),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_gradients_are_finite_differences_of_the_losses(policy, batches):
    rows, p = random_rows(policy), params(policy)
    seen = part(rows, 0)
    target, weight, q = target_of(p, seen), weights_of(p, seen), smaller(p, "targets", seen)
    policy.learn_mode.forward(batch_of(batches, rows))
    expected = {
        "critics": finite_differences(lambda x: critic_loss(x, seen, target), p, "critics"),
        "actor": finite_differences(lambda x: actor_loss(x, seen, weight), p, "net"),
        "value": finite_differences(lambda x: value_loss(x, seen, q), p, "value"),
    }
    for group, slopes in expected.items():
        for grad, wanted in zip(gradients(policy, group), slopes, strict=True):
            np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=2e-6)


def test_a_true_end_cuts_off_what_follows_and_a_time_limit_does_not(policy, batches):
    check_ends(policy, batches)


def test_steps_in_one_call_are_those_of_single_calls(policy, batches):
    check_steps_in_a_call(policy, batches)


def test_everything_moves_and_targets_follow_by_their_share(policy, batches):
    old = params(policy)
    policy.learn_mode.forward(batch_of(batches, random_rows(policy)))
    new = params(policy)
    assert moved(old, new) == {"net", "critics", "targets", "value"}
    check_targets_follow(old, new, [("critics", "targets")])


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.9])
def test_the_loss_is_least_at_the_expectile_in_closed_form(expectile):
    def slope_at(values, e):
        u = np.asarray(values, np.float64) - e
        return -2.0 * (np.where(u < 0, 1 - expectile, expectile) * u).mean()

    def loss(x):
        return primitives.mean(expectile_loss(x, expectile))

    def reference(u):
        return (np.abs(expectile - (u < 0)) * u**2).mean()

    # Of two values 0 and 1 it is tau; of uniform ones in [0, 1] it is sqrt(tau) / (sqrt(tau) + sqrt(1 - tau)).
    cells = (np.arange(1000) + 0.5) / 1000
    root = np.sqrt(expectile)
    closed = {expectile: [0.0, 1.0], root / (root + np.sqrt(1 - expectile)): cells}
    for e, values in closed.items():
        assert abs(slope_at(values, e)) < 1e-6
        assert_gradient(loss, reference, np.asarray(values) - e)
