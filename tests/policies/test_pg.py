"""PG: one update against float64 NumPy, gradients by finite differences, the baselines."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, mask_of, multi_discrete, rows_of
from float64_networks import categorical, finite_differences, gradients, params, scores

from minding.policies import get_policy_class

CONTRACT = {"pg": (dict_of(a=VECTOR, action_mask=mask_of(3, 2)), multi_discrete(3, 2), {})}
LEARNS = {"policy.collect.n_sample": 64, "policy.learn.learning_rate": 0.02}
BOOTSTRAPS = False

STEPS, BATCH = 2, 10
INDEX = np.arange(STEPS * BATCH).reshape(STEPS, BATCH)


@pytest.fixture(scope="module")
def built(tiny_config):
    settings = {"entropy_weight": 0.1, "grad_norm": 1000.0, "learning_rate": 0.01}
    overrides = {f"policy.learn.{key}": value for key, value in settings.items()}
    return get_policy_class("pg")(tiny_config("pg", VECTOR, discrete(3), **overrides))


@pytest.fixture
def policy(built):
    state = copy.deepcopy(built.state_dict())
    yield built
    built.load_state_dict(state)
    built.cfg.learn.baseline = "standardized"


@pytest.fixture(scope="module")
def batches(built):
    return Batches(built, STEPS * BATCH)


@pytest.fixture
def rows(batches):
    rows = rows_of(batches.layout, STEPS * BATCH, np.random.default_rng(0), {"action": 3})
    # The minibatches have baselines of their own.
    rows["return"][BATCH:] += 5.0
    return rows


def without_baseline(returns, baseline):
    returns = returns.astype(np.float64)
    if baseline == "none":
        return returns
    return (returns - returns.mean()) / (returns.std() if baseline == "standardized" else 1.0)


def losses(p, rows, advantage):
    log_prob, entropy = categorical(scores(p, "net.torso", rows["obs"]), rows["action"])
    return -(advantage * log_prob).mean(), entropy.mean()


@pytest.mark.parametrize("baseline", ["none", "mean", "standardized"])
def test_losses_and_gradients_are_those_of_the_formula(policy, batches, rows, baseline):
    policy.cfg.learn.baseline = baseline
    p, part = params(policy), {name: values[:BATCH] for name, values in rows.items()}
    advantage = without_baseline(part["return"], baseline)
    policy_loss, entropy = losses(p, part, advantage)
    output = policy.learn_mode.forward(batches(rows, INDEX[:1]))
    found = [output.metrics[name] for name in ("policy_loss", "entropy", "loss")]
    assert found == pytest.approx([policy_loss, entropy, policy_loss - 0.1 * entropy], rel=1e-5, abs=1e-6)
    slopes = finite_differences(lambda x: np.dot(losses(x, part, advantage), (1.0, -0.1)), p, "net")
    for grad, wanted in zip(gradients(policy, "net"), slopes, strict=True):
        np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=1e-6)
    norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
    assert output.metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)


def test_each_minibatch_has_its_own_baseline(policy, batches, rows):
    policy.cfg.learn.baseline = "mean"
    advantages = policy.inputs(batches(rows, INDEX), 0.0).steps["advantage"]
    for k, advantage in enumerate(advantages):
        expected = without_baseline(rows["return"][INDEX[k]], "mean")
        np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-6)


def test_nothing_but_the_action_is_recorded(built):
    assert set(built.collect_mode.forward(np.zeros((2, 4), np.float32))) == {"action"}
    assert built.collect_mode.record_fields == ()
