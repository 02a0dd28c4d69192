"""PQN: one step against float64 NumPy, exploration."""

import kit
import numpy as np
import pytest
from action_values import MASKED, np_features, np_heads
from fakes import VECTOR, discrete
from float64_networks import finite_differences

pytestmark = pytest.mark.eager

CONTRACT = {
    "pqn": (VECTOR, discrete(3), {"policy.model.normalize_obs": True}),
    "pqn, masked": (MASKED, discrete(3), {"policy.model.dueling": True}),
}
LEARNS = {"policy.collect.n_sample": 64, "policy.learn.learning_rate": 0.01, "policy.other.eps.decay": 1000}
RESUMES = {"PQN": ("CartPole-v1", ("policy.collect.n_sample=64",))}

BATCH, ACTIONS = 16, 3
LEARN = {"grad_norm": 1000.0, "learning_rate": 0.01}
built, bench = kit.benches(
    "pqn", action=discrete(ACTIONS), count=2 * BATCH, learn=LEARN, **{"policy.model.norm": "none"}
)


def test_loss_and_gradient_are_those_of_the_formula(bench):
    p, rows = bench.params, bench.rows(action=ACTIONS)
    part = {name: values[:BATCH] for name, values in rows.items()}

    def chosen(x):
        return np_heads(x, "net", np_features(x, "net", part["obs"]))[np.arange(BATCH), part["action"]]

    def loss(x):
        return 0.5 * np.mean((chosen(x) - part["return"]) ** 2)

    norm = np.sqrt(sum((slope**2).sum() for slope in finite_differences(loss, p, "net")))
    expected = {"loss": loss(p), "q_value": chosen(p).mean(), "grad_norm": norm}
    kit.check_metrics(bench.learn(rows, np.arange(BATCH)[None]).metrics, expected)
    kit.check_gradients(bench.policy, {"net": (loss, p, "net")})


def test_collectors_record_the_highest_value_whatever_is_done(bench):
    obs = np.random.default_rng(1).standard_normal((64, 4)).astype(np.float32)
    values = np_heads(bench.params, "net", np_features(bench.params, "net", obs))
    record = bench.policy.collect_mode.forward(obs, eps=1.0)
    np.testing.assert_allclose(record["value"], values.max(axis=1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(bench.policy.collect_mode.value(obs), values.max(axis=1), rtol=1e-5, atol=1e-6)
    assert (record["action"] != values.argmax(axis=1)).mean() == pytest.approx(2 / 3, abs=0.2)
