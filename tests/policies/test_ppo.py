"""PPO: one update against NumPy, the KL stop, the learning-rate schedule."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, mask_of, multi_discrete, rows_of, set_rate, space_of

from minding.policies import get_policy_class

CONTRACT = {
    "ppo": (VECTOR, multi_discrete(3, 2), {}),
    "ppo, masked": (dict_of(a=VECTOR, action_mask=mask_of(3, 2)), multi_discrete(3, 2), {}),
    "ppo, box": (dict_of(a=VECTOR, b=discrete(2)), space_of(2, 2), {"policy.learn.grad_norm": 0.0}),
    "ppo, memory": (
        dict_of(a=VECTOR, action_mask=mask_of(3)),
        discrete(3),
        {"policy.model.memory": "gru", "policy.model.memory_dim": 5, "policy.model.normalize_obs": True},
    ),
}
LEARNS = {"policy.collect.n_sample": 64, "policy.learn.learning_rate": 0.01, "policy.learn.n_minibatch": 2}
ALTERNATIVES = ("policy.model.memory=gru", "policy.other.rnd.weight=0.5")
RESUMES = {
    "PPO on a vector environment, observations normalized": (
        "CartPole-v1",
        ("env.backend=native", "policy.model.normalize_obs=true"),
    ),
    "PPO in worker processes, dict observations, rewards normalized": (
        "fakes:Hunt",
        ("env.backend=subprocess", "env.workers=2", "env.normalize_reward=true"),
    ),
    "PPO with agents who leave, come late and have masks": (
        "agent_worlds:Squad",
        ("env.env_kwargs={leave: 2, late: 1, mask: info}", "env.info_keys=[action_mask, load]"),
    ),
    "PPO with action masks": ("minding/MaskedGrid-v0", ("env.info_keys=[action_mask, success]",)),
    "PPO with memory and RND": (
        "minding/TMaze-v0",
        ("policy.model.memory=gru", "policy.model.memory_dim=8", "policy.other.rnd.weight=0.5"),
    ),
}

STEPS, BATCH = 3, 16


@pytest.fixture(scope="module")
def built(tiny_config):
    cfg = tiny_config("ppo", VECTOR, discrete(3), **{"policy.learn.target_kl": 0.1, "policy.learn.learning_rate": 0.01})
    return get_policy_class("ppo")(cfg)


@pytest.fixture
def policy(built):
    state = copy.deepcopy(built.state_dict())
    yield built
    built.load_state_dict(state)
    set_rate(built, 0.01)


@pytest.fixture(scope="module")
def batches(built):
    return Batches(built, BATCH)


@pytest.fixture
def batch_for(policy, batches):
    """A maker of rollouts as the policy itself would have recorded them, the same minibatch in every step."""

    def make(**changes):
        values = rows_of(batches.layout, BATCH, np.random.default_rng(0))
        values.update({**policy.collect_mode.forward(values["obs"]), **changes})
        return values, batches(values, np.tile(np.arange(BATCH), (STEPS, 1)))

    return make


def test_the_update_computes_the_loss_of_its_formula(policy, batch_for):
    old_log_prob = np.log(np.random.default_rng(1).uniform(0.2, 0.5, BATCH)).astype(np.float32)
    values, batch = batch_for(log_prob=old_log_prob)
    set_rate(policy, 1e-12)
    state_value, logits = (x.astype(np.float64) for x in policy.actors["eval"].outputs(values["obs"]))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    advantage = (values["advantage"] - values["advantage"].mean()) / (values["advantage"].std() + 1e-8)
    ratio = np.exp(log_p[np.arange(BATCH), values["action"]] - old_log_prob)
    policy_loss = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 0.8, 1.2)).mean()
    # The old value is the present one: the clip changes nothing.
    value_loss = 0.5 * ((state_value - values["return"]) ** 2).mean()
    entropy = -(np.exp(log_p) * log_p).sum(axis=1).mean()
    metrics = policy.learn_mode.forward(batch).metrics
    # However many steps the KL limit allows, the means are those of one.
    assert metrics["policy_loss"] == pytest.approx(policy_loss, rel=1e-4, abs=1e-5)
    assert metrics["value_loss"] == pytest.approx(value_loss, rel=1e-4)
    assert metrics["entropy"] == pytest.approx(entropy, rel=1e-4)
    assert metrics["loss"] == pytest.approx(policy_loss + 0.5 * value_loss - 0.01 * entropy, rel=1e-4, abs=1e-5)
    assert metrics["approx_kl"] == pytest.approx((ratio - 1 - np.log(ratio)).mean(), rel=1e-3)
    assert metrics["clip_fraction"] == pytest.approx((np.abs(ratio - 1) > 0.2).mean())


def test_the_first_step_on_its_own_data_has_no_kl_and_makes_all_steps(policy, batch_for):
    set_rate(policy, 1e-12)
    _, batch = batch_for()
    output = policy.learn_mode.forward(batch)
    metrics = output.metrics
    assert output.steps == STEPS
    assert abs(metrics["approx_kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize("steps", [1, STEPS])
def test_a_step_on_which_the_policy_has_moved_too_far_is_not_made(policy, batch_for, steps):
    _, batch = batch_for(log_prob=np.full(BATCH, -5.0, np.float32))
    batch.index, before = batch.index[:steps], policy.state_dict()["params"]
    output = policy.learn_mode.forward(batch)
    assert output.steps == 0
    assert output.metrics["approx_kl"] > 0.15
    assert output.metrics["grad_norm"] == 0.0
    assert all(np.array_equal(values, before[name]) for name, values in policy.state_dict()["params"].items())


def test_steps_end_before_the_one_that_finds_the_policy_too_far(policy, batch_for):
    """One step moves it beyond the limit: the state is that after this step alone."""
    set_rate(policy, 0.3)
    start, (_, batch) = copy.deepcopy(policy.state_dict()), batch_for()
    output = policy.learn_mode.forward(batch)
    assert output.steps == 1
    # The mean of 0 in the step made and of what the next one found.
    assert output.metrics["approx_kl"] > 0.15 / 2
    found = policy.state_dict()["params"]
    policy.load_state_dict(start)
    batch.index = batch.index[:1]
    assert policy.learn_mode.forward(batch).steps == 1
    for name, values in policy.state_dict()["params"].items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize(("progress", "rate"), [(0.0, 0.01), (0.25, 0.0075), (1.0, 0.0), (1.5, 0.0)])
def test_the_learning_rate_falls_to_zero_over_the_run(policy, batch_for, progress, rate):
    _, batch = batch_for()
    before = policy.state_dict()["params"]["net.value.bias"]
    metrics = policy.learn_mode.forward(batch, progress=progress).metrics
    assert metrics["learning_rate"] == pytest.approx(rate)
    assert np.array_equal(policy.state_dict()["params"]["net.value.bias"], before) == (rate == 0.0)


def test_data_of_an_older_policy_are_weighted_and_clipped_around_the_present_one(policy, batch_for):
    old_log_prob = np.log(np.random.default_rng(1).uniform(0.05, 0.9, BATCH)).astype(np.float32)
    values, batch = batch_for(log_prob=old_log_prob, value=np.full(BATCH, 9.0, np.float32))
    batch.lag = 1
    set_rate(policy, 1e-12)
    state_value, logits = (x.astype(np.float64) for x in policy.actors["eval"].outputs(values["obs"]))
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    weight = np.minimum(np.exp(log_p[np.arange(BATCH), values["action"]] - old_log_prob), 2.0)
    advantage = (values["advantage"] - values["advantage"].mean()) / (values["advantage"].std() + 1e-8)
    output = policy.learn_mode.forward(batch)
    metrics = output.metrics
    # The update starts from the present policy: no ratio is clipped, and no value either.
    assert output.steps == STEPS
    assert metrics["clip_fraction"] == 0.0
    assert metrics["policy_loss"] == pytest.approx(-(weight * advantage).mean(), rel=1e-4, abs=1e-5)
    assert metrics["value_loss"] == pytest.approx(0.5 * ((state_value - values["return"]) ** 2).mean(), rel=1e-4)
    assert (weight == 2.0).any()


def test_every_step_on_older_data_is_that_on_data_of_the_policy_at_the_start(policy, batch_for, monkeypatch):
    monkeypatch.setitem(policy.cfg.learn, "normalize_advantage", False)
    present, _ = batch_for()
    older = {
        "log_prob": np.log(np.random.default_rng(1).uniform(0.2, 0.5, BATCH)).astype(np.float32),
        "value": np.full(BATCH, 9.0, np.float32),
    }
    weight = np.minimum(np.exp(present["log_prob"] - older["log_prob"]), 2.0)
    start = copy.deepcopy(policy.state_dict())
    _, batch = batch_for(**{**present, "advantage": present["advantage"] * weight})
    expected, params = policy.learn_mode.forward(batch).metrics, policy.state_dict()["params"]
    policy.load_state_dict(start)
    _, batch = batch_for(**{**present, **older})
    batch.lag = 1
    # All of it happens in the compiled update: what acts is not asked, and the rollout stays as it was collected.
    monkeypatch.setattr(policy.actors["collect"], "network", None)
    assert policy.learn_mode.forward(batch).metrics == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for name, value in policy.state_dict()["params"].items():
        np.testing.assert_allclose(value, params[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert np.array_equal(batch.layout.read(batch.tables.host, "log_prob"), older["log_prob"])


def test_data_of_the_present_policy_are_learned_from_as_they_are(policy, batch_for):
    _, batch = batch_for()
    before = [table.copy() for table in batch.tables.host]
    policy.learn_mode.forward(batch)
    assert all(np.array_equal(table, old) for table, old in zip(batch.tables.host, before))


def test_the_value_is_that_of_the_record(policy):
    obs = np.random.default_rng(2).standard_normal((5, 4)).astype(np.float32)
    assert np.array_equal(policy.collect_mode.value(obs), policy.collect_mode.forward(obs)["value"])


def test_the_log_probability_is_that_of_the_action_drawn(policy):
    obs = np.random.default_rng(2).standard_normal((50, 4)).astype(np.float32)
    record = policy.collect_mode.forward(obs)
    _, logits = policy.actors["eval"].outputs(obs)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(record["log_prob"], log_p[np.arange(50), record["action"]], atol=1e-5)
