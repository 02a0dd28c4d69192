"""PPO with memory: what it learns from sequences, against NumPy and against what acted."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, discrete, set_rate

from minding.engine.data.batch import Field
from minding.policies import get_policy_class

STEPS, ENVS = 4, 6
ROWS = STEPS * ENVS
INDEX = np.arange(ROWS, dtype=np.int32).reshape(STEPS, ENVS)
HALVES = np.stack([INDEX[:, [4, 1, 0]], INDEX[:, [5, 2, 3]]])
# The same three environments in both steps.
TWICE = np.stack([INDEX[:, [1, 4, 0]]] * 2)


@pytest.fixture(scope="module")
def built(tiny_config):
    overrides = {"policy.model.memory": "gru", "policy.model.memory_dim": 5, "policy.learn.learning_rate": 0.01}
    return get_policy_class("ppo")(tiny_config("ppo", VECTOR, discrete(3), **overrides))


@pytest.fixture
def policy(built):
    state = copy.deepcopy(built.state_dict())
    yield built
    built.load_state_dict(state)
    set_rate(built, 0.01)


@pytest.fixture(scope="module")
def batches(built):
    return Batches(built, ROWS)


@pytest.fixture
def rollout(policy):
    """What four steps of six environments leave behind, from the middle of their episodes; two of them end."""
    rng, mode = np.random.default_rng(0), policy.collect_mode
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


def test_sequences_are_learned_from_as_they_were_acted(policy, rollout, batches):
    set_rate(policy, 1e-12)
    assert rollout["memory"][:ENVS].any(axis=1).all()
    metrics = policy.learn_mode.forward(batches(rollout, HALVES)).metrics
    assert abs(metrics["approx_kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0.0
    error = ((rollout["value"].astype(np.float64) - rollout["return"]) ** 2).mean()
    assert metrics["value_loss"] == pytest.approx(0.5 * error, rel=1e-4)
    # Without the beginnings, or what was remembered before the first rows, it would be another one.
    for changes in ({"begun": np.zeros(ROWS, bool)}, {"memory": np.zeros_like(rollout["memory"])}):
        changed = policy.learn_mode.forward(batches({**rollout, **changes}, HALVES)).metrics
        assert abs(changed["value_loss"] / metrics["value_loss"] - 1.0) > 1e-3


def test_only_what_is_remembered_before_the_first_rows_is_read(policy, rollout, batches):
    set_rate(policy, 1e-12)
    expected = policy.learn_mode.forward(batches(rollout, HALVES)).metrics
    later = rollout["memory"].copy()
    later[ENVS:] = 7.0
    assert policy.learn_mode.forward(batches({**rollout, "memory": later}, HALVES)).metrics == expected


def test_the_update_computes_the_loss_of_its_formula_and_leaves_out_rows_of_resets(policy, rollout, batches):
    set_rate(policy, 1e-12)
    rng = np.random.default_rng(1)
    old = rollout["log_prob"] + rng.uniform(-0.4, 0.4, ROWS).astype(np.float32)
    valid = np.ones(ROWS, bool)
    valid[[0, 7, 16, 23]] = False
    batch = batches({**rollout, "log_prob": old, "valid": valid}, TWICE)
    metrics = policy.learn_mode.forward(batch).metrics
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
    batch = batches({**rollout, **other, "log_prob": old, "valid": valid}, TWICE)
    assert policy.learn_mode.forward(batch).metrics == metrics


@pytest.mark.slow
def test_every_step_on_older_data_is_that_on_data_of_the_policy_at_the_start(policy, rollout, batches, monkeypatch):
    monkeypatch.setitem(policy.cfg.learn, "normalize_advantage", False)
    log_prob = rollout["log_prob"] + np.random.default_rng(1).uniform(-1.0, 1.0, ROWS).astype(np.float32)
    older = {"log_prob": log_prob, "value": np.full(ROWS, 9.0, np.float32)}
    weight = np.minimum(np.exp(rollout["log_prob"] - log_prob), 2.0)
    start = copy.deepcopy(policy.state_dict())
    weighted = {**rollout, "advantage": rollout["advantage"] * weight}
    expected = policy.learn_mode.forward(batches(weighted, HALVES)).metrics
    params = policy.state_dict()["params"]
    policy.load_state_dict(start)
    batch = batches({**rollout, **older}, HALVES)
    batch.lag = 1
    assert policy.learn_mode.forward(batch).metrics == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for name, value in policy.state_dict()["params"].items():
        np.testing.assert_allclose(value, params[name], rtol=1e-3, atol=1e-5, err_msg=name)


def test_gradients_flow_back_to_the_first_row(policy, rollout, batches):
    """Only the last row counts; what the encoder sees before still moves the weights of the memory."""
    last = np.zeros(ROWS, bool)
    last[-ENVS:] = True
    valid = {**rollout, "valid": last, "begun": np.zeros(ROWS, bool)}
    before = policy.state_dict()["params"]
    moved = []
    for first in (rollout["obs"], np.concatenate([np.zeros((ENVS, 4), np.float32), rollout["obs"][ENVS:]])):
        policy.learn_mode.forward(batches({**valid, "obs": first}, TWICE))
        moved.append(policy.state_dict()["params"]["net.memory.inputs.weight"])
        policy.load_state_dict({**policy.state_dict(), "params": before})
    assert np.abs(moved[0] - moved[1]).max() > 1e-6


def test_rows_hold_the_memory_only_where_there_is_one(policy, tiny_config):
    assert policy.learn_mode.fields["memory"] == Field((5,))
    assert "memory" not in get_policy_class("ppo")(tiny_config("ppo")).learn_mode.fields
