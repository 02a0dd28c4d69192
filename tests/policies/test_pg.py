"""PG: one update against float64 NumPy, gradients by finite differences, the baselines."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, composite, dict_of, discrete, mask_of
from float64_networks import categorical, finite_differences, scores

pytestmark = pytest.mark.eager

CONTRACT = {"pg": (dict_of(a=VECTOR, action_mask=mask_of(3, 2)), composite(3, 2, numbers=2), {})}
LEARNS = {"policy.collect.n_sample": 64, "policy.learn.learning_rate": 0.02}
BOOTSTRAPS = False

STEPS, BATCH = 2, 10
INDEX = np.arange(STEPS * BATCH).reshape(STEPS, BATCH)
LEARN = {"entropy_weight": 0.1, "grad_norm": 1000.0, "learning_rate": 0.01}
built, bench = kit.benches("pg", action=discrete(3), count=STEPS * BATCH, learn=LEARN)


def rows_of(bench):
    rows = bench.rows(action=3)
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
def test_losses_and_gradients_are_those_of_the_formula(bench, baseline):
    bench.settings.baseline = baseline
    p, rows = bench.params, rows_of(bench)
    part = {name: values[:BATCH] for name, values in rows.items()}
    advantage = without_baseline(part["return"], baseline)

    def loss(x):
        return np.dot(losses(x, part, advantage), (1.0, -0.1))

    policy_loss, entropy = losses(p, part, advantage)
    norm = np.sqrt(sum((slope**2).sum() for slope in finite_differences(loss, p, "net")))
    expected = {"policy_loss": policy_loss, "entropy": entropy, "loss": loss(p), "grad_norm": norm}
    kit.check_metrics(bench.learn(rows, INDEX[:1]).metrics, expected)
    kit.check_gradients(bench.policy, {"net": (loss, p, "net")})


def test_each_minibatch_has_its_own_baseline(bench):
    bench.settings.baseline = "mean"
    rows = rows_of(bench)
    advantages = bench.policy.inputs(bench.batch(rows, INDEX), 0.0).steps["advantage"]
    for k, advantage in enumerate(advantages):
        expected = without_baseline(rows["return"][INDEX[k]], "mean")
        np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-6)
