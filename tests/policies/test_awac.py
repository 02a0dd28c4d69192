"""AWAC: one update against float64 NumPy, gradients by finite differences, limited weights and deviations."""

import numpy as np
import pytest
from fakes import VECTOR, space_of
from float64_networks import finite_differences, gradients, linear_head, moved, normal, params, value
from recorded_transitions import (
    BATCH,
    SIZE,
    batch_of,
    bootstrapped,
    build,
    check_ends,
    check_steps_in_a_call,
    check_targets_follow,
    disturbed,
    part,
    random_rows,
    upcoming,
)

from minding.engine.process.runtime import to_device
from minding.policies.families.weighted_regression import advantage_weights

CONTRACT = {"awac": (VECTOR, space_of(2, 2), {"policy.model.normalize_obs": True})}
RESUMES = {}
"""IQL's has all that it keeps, and more; CQL's draws numbers."""

SCALE, LIMIT = 2.0, 1.5
LOW, HIGH = -5.0, 2.0


@pytest.fixture(scope="module")
def built(tiny_config):
    return build(tiny_config, "awac", weight_scale=SCALE, weight_limit=LIMIT)


@pytest.fixture(params=[0.0, -6.0], ids=["free", "deviation at its limit"])
def policy(built, request):
    """The policy with targets that differ, and with one deviation as it was or below its limit."""
    for policy in disturbed(built[0], built[0].root.targets):
        policy.root.net.head.log_std.asnumpy()[0] = request.param
        yield policy


@pytest.fixture
def batches(built):
    return built[1]


def smaller(p, part, action, obs):
    return np.minimum(*(value(p, f"{part}.{q}", action, obs) for q in ("q1", "q2")))


def log_std_of(p):
    return np.clip(p["net.head.log_std"], LOW, HIGH)


def drawn(p, obs, noise):
    return np.clip(linear_head(p, "net", "linear", obs) + np.exp(log_std_of(p)) * noise, -1.0, 1.0)


def target_of(p, rows, noise):
    return bootstrapped(rows, smaller(p, "targets", drawn(p, rows["next_obs"], noise), rows["next_obs"]))


def advantage_of(p, rows, noise):
    own = smaller(p, "critics", drawn(p, rows["obs"], noise), rows["obs"])
    return smaller(p, "critics", rows["action"], rows["obs"]) - own


def weights_of(p, rows, noise):
    return np.minimum(np.exp(SCALE * advantage_of(p, rows, noise)), LIMIT)


def critic_loss(p, rows, target):
    errors = [value(p, f"critics.{q}", rows["action"], rows["obs"]) - target for q in ("q1", "q2")]
    return 0.5 * np.mean(errors[0] ** 2 + errors[1] ** 2)


def actor_loss(p, rows, weight):
    log_prob, _ = normal(linear_head(p, "net", "linear", rows["obs"]), log_std_of(p), rows["action"])
    return -(weight * log_prob).mean()


def noise_of_next_call(policy):
    """That of the next action, and that of the policy's own."""
    return upcoming(policy).standard_normal((1, 2, BATCH, SIZE), dtype=np.float32)[0]


def test_losses_targets_and_weights_are_those_of_the_formulas(policy, batches):
    rows, p = random_rows(policy), params(policy)
    following, own = noise_of_next_call(policy)
    seen = part(rows, 0)
    weight = weights_of(p, seen, own)
    # What the formulas treat apart is in the batch.
    assert 0 < (weight == LIMIT).sum() < BATCH
    assert 0 < (np.abs(drawn(p, seen["obs"], own)) == 1.0).sum() < BATCH * SIZE
    metrics = policy.learn_mode.forward(batch_of(batches, rows)).metrics
    expected = {
        "critic_loss": critic_loss(p, seen, target_of(p, seen, following)),
        "q_value": value(p, "critics.q1", seen["action"], seen["obs"]).mean(),
        "advantage": advantage_of(p, seen, own).mean(),
        "weight": weight.mean(),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert metrics["actor_loss"] == pytest.approx(actor_loss(p, seen, weight), rel=1e-5)


def test_gradients_are_finite_differences_of_the_losses(policy, batches):
    rows, p = random_rows(policy), params(policy)
    following, own = noise_of_next_call(policy)
    seen = part(rows, 0)
    target, weight = target_of(p, seen, following), weights_of(p, seen, own)
    policy.learn_mode.forward(batch_of(batches, rows))
    expected = {
        "critics": finite_differences(lambda x: critic_loss(x, seen, target), p, "critics"),
        "actor": finite_differences(lambda x: actor_loss(x, seen, weight), p, "net"),
    }
    for group, slopes in expected.items():
        for grad, wanted in zip(gradients(policy, group), slopes, strict=True):
            np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=2e-6 * max(1.0, np.abs(wanted).max()))


def test_a_true_end_cuts_off_what_follows_and_a_time_limit_does_not(policy, batches):
    check_ends(policy, batches)


def test_steps_in_one_call_are_those_of_single_calls(policy, batches):
    check_steps_in_a_call(policy, batches)


def test_everything_moves_and_targets_follow_by_their_share(policy, batches):
    old = params(policy)
    policy.learn_mode.forward(batch_of(batches, random_rows(policy)))
    new = params(policy)
    assert moved(old, new) == {"net", "critics", "targets"}
    check_targets_follow(old, new, [("critics", "targets")])


def test_weights_are_limited_and_no_advantage_overflows():
    advantage = to_device(np.float32([-1e6, -1.0, 0.0, 0.2, 3.0, 1e6]))
    weight = advantage_weights(advantage, 2.0, 100.0).asnumpy()
    np.testing.assert_allclose(weight, [0.0, np.exp(-2.0), 1.0, np.exp(0.4), 100.0, 100.0], rtol=1e-6)
