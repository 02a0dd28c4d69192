"""PPO with memory: what it learns from sequences, against NumPy and against what acted."""

import kit
import numpy as np
import pytest
from fakes import discrete

pytestmark = pytest.mark.eager

STEPS, ENVS = 4, 6
ROWS = STEPS * ENVS
INDEX = np.arange(ROWS, dtype=np.int32).reshape(STEPS, ENVS)
HALVES = np.stack([INDEX[:, [4, 1, 0]], INDEX[:, [5, 2, 3]]])
# The same three environments in both steps.
TWICE = np.stack([INDEX[:, [1, 4, 0]]] * 2)

MEMORY = {"policy.model.memory": "gru", "policy.model.memory_dim": 5, "policy.model.normalize_obs": False}
# A transformer that remembers fewer steps than the rollout has.
TRANSFORMER = {"policy.model.memory": "gtrxl", "policy.model.memory_dim": 6, "policy.model.memory_length": 2}
KINDS = {"gru": {}, "gtrxl": {**TRANSFORMER, "policy.model.memory_heads": 2}}
LEARN = {"learning_rate": 0.01, "value_clip": True}
built, bench = kit.benches("ppo", action=discrete(3), count=ROWS, learn=LEARN, kinds=KINDS, **MEMORY)


@pytest.fixture
def rollout(bench):
    """What four steps of six environments leave behind, from the middle of their episodes; two of them end."""
    rng, mode = np.random.default_rng(0), bench.policy.collect_mode
    begun = np.zeros((STEPS, ENVS), bool)
    begun[[2, 3], [1, 4]] = True
    rows = []
    mode.reset()
    mode.forward(rng.standard_normal((ENVS, 4)).astype(np.float32))
    for t in range(STEPS):
        mode.reset(np.flatnonzero(begun[t]))
        obs = rng.standard_normal((ENVS, 4)).astype(np.float32)
        rows.append({"obs": obs, **mode.forward(obs)})
    values = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    advantage, target = rng.standard_normal((2, ROWS)).astype(np.float32)
    return {
        **values,
        "advantage": advantage,
        "return": target,
        "begun": begun.reshape(-1),
        "valid": np.ones(ROWS, bool),
    }


@pytest.mark.parametrize("bench", KINDS, indirect=True)
def test_sequences_are_learned_from_as_they_were_acted(bench, rollout):
    bench.hold_still()
    assert rollout["memory"][:ENVS].any(axis=1).all()
    metrics = bench.learn(rollout, HALVES).metrics
    assert abs(metrics["approx_kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0.0
    error = ((rollout["value"].astype(np.float64) - rollout["return"]) ** 2).mean()
    assert metrics["value_loss"] == pytest.approx(0.5 * error, rel=1e-4)
    # Without the beginnings, or what was remembered before the first rows, it would be another one.
    for changes in ({"begun": np.zeros(ROWS, bool)}, {"memory": np.zeros_like(rollout["memory"])}):
        changed = bench.learn({**rollout, **changes}, HALVES).metrics
        assert abs(changed["value_loss"] / metrics["value_loss"] - 1.0) > 1e-3


def test_the_update_follows_its_formula_without_reset_rows(bench, rollout):
    bench.hold_still()
    rng = np.random.default_rng(1)
    old = rollout["log_prob"] + rng.uniform(-0.4, 0.4, ROWS).astype(np.float32)
    valid = np.ones(ROWS, bool)
    valid[[0, 7, 16, 23]] = False
    batch = bench.batch({**rollout, "log_prob": old, "valid": valid}, TWICE)
    metrics = bench.policy.learn_mode.forward(batch).metrics
    counted = TWICE[0][valid[TWICE[0]]]
    assert len(counted) == 9
    advantage = rollout["advantage"][counted].astype(np.float64)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = np.exp(rollout["log_prob"][counted].astype(np.float64) - old[counted])
    policy_loss = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 0.8, 1.2)).mean()
    value_loss = 0.5 * ((rollout["value"] - rollout["return"])[counted].astype(np.float64) ** 2).mean()
    assert metrics["policy_loss"] == pytest.approx(policy_loss, rel=1e-4, abs=1e-5)
    assert metrics["value_loss"] == pytest.approx(value_loss, rel=1e-4)
    assert metrics["approx_kl"] == pytest.approx((ratio - 1 - np.log(ratio)).mean(), rel=1e-3)
    assert metrics["clip_fraction"] == pytest.approx((np.abs(ratio - 1) > 0.2).mean(), rel=1e-5)
    # What such rows hold does not matter; that they are unrolled does.
    other = {name: np.where(valid, rollout[name], np.float32(3.0)) for name in ("advantage", "return", "value")}
    batch = bench.batch({**rollout, **other, "log_prob": old, "valid": valid}, TWICE)
    assert bench.policy.learn_mode.forward(batch).metrics == metrics
