"""A2C: one update against float64 NumPy, gradients by finite differences, sequences, RMSProp, Monte-Carlo returns."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, mask_of, multi_discrete, space_of
from float64_networks import categorical, finite_differences, scores, state_value

pytestmark = pytest.mark.eager

CONTRACT = {
    "a2c": (VECTOR, space_of(2, 2), {"policy.model.normalize_obs": True}),
    "a2c, memory, masked": (
        dict_of(a=VECTOR, action_mask=mask_of(3, 2)),
        multi_discrete(3, 2),
        {"policy.model.memory": "lstm", "policy.model.memory_dim": 5},
    ),
}
LEARNS = {"policy.collect.n_sample": 32, "policy.learn.learning_rate": 0.01, "policy.learn.anneal_lr": "false"}
ALTERNATIVES = ("policy.model.memory=lstm",)
RESUMES = {
    "A2C with memory and agents who leave, come late and have masks": (
        "agent_worlds:Squad",
        (
            "env.env_kwargs={leave: 2, late: 1, mask: info}",
            "env.info_keys=[action_mask, load]",
            "policy.model.memory=lstm",
            "policy.model.memory_dim=8",
        ),
    )
}

RATE = 0.01
ADAM = {"optimizer": "adam", "grad_norm": 0.0, "learning_rate": RATE}
built, bench = kit.benches("a2c", action=discrete(3), count=12, learn=ADAM)


def metrics_of(p, rows, advantage):
    log_prob, entropy = categorical(scores(p, "net.actor", rows["obs"]), rows["action"])
    policy_loss, entropy = -(advantage * log_prob).mean(), entropy.mean()
    value_loss = 0.5 * ((state_value(p, rows["obs"]) - rows["return"]) ** 2).mean()
    ratio = np.exp(log_prob - rows["log_prob"])
    return {
        "loss": policy_loss + 0.5 * value_loss - 0.01 * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - np.log(ratio)).mean(),
    }


def test_losses_follow_the_formula_and_finite_differences(bench):
    p, rows = bench.params, bench.rows(action=3)
    advantage = rows["advantage"].astype(np.float64)
    kit.check_metrics(bench.learn(rows).metrics, metrics_of(p, rows, advantage))
    kit.check_gradients(bench.policy, {"net": (lambda x: metrics_of(x, rows, advantage)["loss"], p, "net")})


def test_advantages_are_standardised_where_asked_for(bench):
    bench.settings.normalize_advantage = True
    rows = bench.rows(action=3)
    advantage = rows["advantage"].astype(np.float64)
    expected = metrics_of(bench.params, rows, (advantage - advantage.mean()) / advantage.std())
    kit.check_metrics(bench.learn(rows).metrics, expected)


def test_rmsprop_is_the_default_and_gradients_are_bounded():
    bench = kit.Bench(kit.make_policy("a2c", VECTOR, discrete(3), {"anneal_lr": False}), 12)
    rows, p = bench.rows(action=3), bench.params
    slopes = finite_differences(lambda x: metrics_of(x, rows, rows["advantage"])["loss"], p, "net")
    norm = np.sqrt(sum((slope**2).sum() for slope in slopes))
    metrics = bench.learn(rows).metrics
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert norm > 0.5
    names, after = [name for name in p if name.startswith("net.")], bench.params
    for name, slope in zip(names, slopes, strict=True):
        grad = slope * 0.5 / norm
        np.testing.assert_allclose(after[name], p[name] - 7e-4 * grad / (0.1 * np.abs(grad) + 1e-5), atol=2e-5)
