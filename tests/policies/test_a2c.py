"""A2C: one update against float64 NumPy, gradients by finite differences, sequences, RMSProp, Monte-Carlo returns."""

import dataclasses

import kit
import numpy as np
import pytest
from fakes import VECTOR, dict_of, discrete, mask_of, multi_discrete, space_of
from float64_networks import categorical, finite_differences, normal, params, scores, state_value

from minding import training
from minding.configs import compile_run
from minding.engine import Config, OnlineRLContext, Task

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


@pytest.mark.parametrize(("progress", "rate"), [(0.0, RATE), (0.25, 0.75 * RATE), (1.0, 0.0)])
def test_the_learning_rate_falls_to_zero_over_the_run(bench, progress, rate):
    before = bench.params["net.value.bias"]
    assert bench.learn(bench.rows(action=3), progress=progress).metrics["learning_rate"] == rate
    assert np.array_equal(bench.params["net.value.bias"], before) == (rate == 0.0)


def test_a_schedule_stays_at_its_end_beyond_the_run(bench):
    groups, rows = bench.root.optim.groups, bench.rows(action=3)
    groups["net"] = dataclasses.replace(groups["net"], kind="exp")
    rates = [bench.learn(rows, progress=x).metrics["learning_rate"] for x in (-1.0, 0.0, 1.0, 2.0)]
    assert rates == pytest.approx([RATE, RATE, RATE * np.exp(-5.0), RATE * np.exp(-5.0)])


def test_a_memorys_sequences_restart_at_ends():
    memory, steps, envs = {"policy.model.memory": "gru", "policy.model.memory_dim": 4}, 4, 3
    bench = kit.Bench(kit.make_policy("a2c", VECTOR, space_of(2), ADAM, **memory), steps * envs)
    policy = bench.policy
    rng, mode = np.random.default_rng(0), policy.collect_mode
    begun, valid = np.zeros((steps, envs), bool), np.ones((steps, envs), bool)
    begun[[1, 3], [0, 2]], valid[[0, 2], [0, 2]] = True, False
    acted = []
    for t in range(steps):
        mode.reset(np.flatnonzero(begun[t]))
        obs = rng.standard_normal((envs, 4)).astype(np.float32)
        acted.append({"obs": obs, **mode.forward(obs)})
    rows = {name: np.concatenate([row[name] for row in acted]) for name in acted[0]}
    advantage, target = rng.standard_normal((2, steps * envs)).astype(np.float32)
    rows.update(advantage=advantage, begun=begun.reshape(-1), valid=valid.reshape(-1), **{"return": target})
    index = np.arange(steps * envs).reshape(1, steps, envs)
    bench.hold_still()
    metrics = bench.learn(rows, index).metrics
    counted = rows["valid"]
    policy_loss = -(advantage * rows["log_prob"].astype(np.float64))[counted].mean()
    value_loss = 0.5 * ((rows["value"] - target)[counted].astype(np.float64) ** 2).mean()
    entropy = normal(np.zeros((1, 2)), np.zeros(2), np.zeros((1, 2)))[1]
    # What was unrolled is what was acted.
    assert abs(metrics["approx_kl"]) < 1e-6
    expected = [policy_loss, value_loss, policy_loss + 0.5 * value_loss - 0.01 * entropy]
    assert [metrics[name] for name in ("policy_loss", "value_loss", "loss")] == pytest.approx(expected, rel=1e-4)


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


@pytest.mark.slow
def test_it_learns_from_monte_carlo_returns_as_from_lambda_one():
    results = []
    for chain in ("monte_carlo", "on_policy"):
        user = Config(env={"env_id": "CartPole-v1"}, policy={"type": "a2c", "model": {"hidden": [8]}}, chain=chain)
        cfg, task = compile_run(user, ["policy.eval.freq=1000000"]), Task()
        with task.start(ctx=OnlineRLContext()):
            policy = training.build(task, cfg)
            task.run(max_step=6)
        results.append(params(policy))
    for name, values in results[0].items():
        assert np.array_equal(values, results[1][name]), name
