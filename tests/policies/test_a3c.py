"""A3C: one update against float64 NumPy."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, discrete, space_of
from float64_networks import normal, scores, state_value

pytestmark = pytest.mark.eager

CONTRACT = {"a3c": (VECTOR, discrete(3), {})}
LEARNS = {"policy.collect.n_sample": 64, "policy.learn.learning_rate": 0.02, "policy.learn.anneal_lr": "false"}
RESUMES = {}
"""A2C's have all that it keeps."""

LEARN = {"entropy_weight": 0.1, "grad_norm": 0.0}
built, bench = kit.benches("a3c", action=space_of(2), learn=LEARN)


def metrics_of(p, rows, advantage):
    log_prob, entropy = normal(scores(p, "net.actor", rows["obs"]), p["net.head.log_std"], rows["action"])
    policy_loss = -(advantage * log_prob).mean()
    value_loss = 0.5 * ((rows["return"] - state_value(p, rows["obs"])) ** 2).mean()
    loss = policy_loss + 0.5 * value_loss - 0.1 * entropy
    return {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "loss": loss}


def test_the_update_has_the_loss_and_gradient_of_its_formula(bench):
    rows, p = bench.rows(), bench.params
    # No gradient flows through the advantages.
    advantage = rows["return"] - state_value(p, rows["obs"])
    log_prob, _ = normal(scores(p, "net.actor", rows["obs"]), p["net.head.log_std"], rows["action"])
    rows["log_prob"] = (log_prob - 0.5).astype(np.float32)
    output = bench.learn(rows)
    assert output.steps == 1
    expected = {**metrics_of(p, rows, advantage), "approx_kl": np.exp(0.5) - 1.5}
    kit.check_metrics(output.metrics, expected, rel=1e-4)
    kit.check_gradients(bench.policy, {"net": (lambda x: metrics_of(x, rows, advantage)["loss"], p, "net")})
