"""PPO: one update against NumPy, the KL stop, the learning-rate schedule."""

import kit
import numpy as np
import pytest
from fakes import VECTOR, composite, dict_of, discrete, mask_of, multi_discrete, set_rate, space_of
from float64_networks import categorical, gradients, names_of, normal, scores, state_value

pytestmark = pytest.mark.eager

CONTRACT = {
    "ppo": (VECTOR, multi_discrete(3, 2), {}),
    "ppo, masked": (dict_of(a=VECTOR, action_mask=mask_of(3, 2)), multi_discrete(3, 2), {}),
    "ppo, composite": (
        dict_of(a=VECTOR, action_mask=mask_of(3, 2)),
        composite(3, 2, numbers=2),
        {"policy.model.memory": "gru", "policy.model.memory_dim": 5},
    ),
    "ppo, box": (
        dict_of(a=VECTOR, b=discrete(2)),
        space_of(2, 2),
        {"policy.learn.grad_norm": 0.0, "policy.model.block": "residual", "policy.learn.kl_weight": 0.5, **kit.RAW},
    ),
    "ppo, memory": (
        dict_of(a=VECTOR, action_mask=mask_of(3)),
        discrete(3),
        {"policy.model.memory": "gru", "policy.model.memory_dim": 5},
    ),
}
LEARNS = {
    "policy.collect.n_sample": 64,
    "policy.learn.learning_rate": 0.01,
    "policy.learn.n_epoch": 4,
    "policy.learn.n_minibatch": 2,
    # Values are in units of the rewards that are learned from.
    "env.normalize_reward": False,
}
ALTERNATIVES = ("policy.model.memory=gru", "policy.other.rnd.weight=0.5", "policy.learn.kl_weight=0.5")
RESUMES = {
    "PPO on a vector environment": ("CartPole-v1", ("env.backend=native",)),
    "PPO in worker processes, dict observations": ("probes:Hunt", ("env.backend=subprocess", "env.workers=2")),
    "PPO with agents who leave, come late and have masks": (
        "agent_worlds:Squad",
        ("env.env_kwargs={leave: 2, late: 1, mask: info}", "env.info_keys=[action_mask, load]"),
    ),
    "PPO with action masks": ("minding/MaskedGrid-v0", ("env.info_keys=[action_mask, success]",)),
    "PPO with choices and numbers, masked": (
        "minding/Aim-v0",
        ("env.env_kwargs={blocked: 2}", "env.info_keys=[action_mask]"),
    ),
    "PPO with memory, rewards for novelty and a penalty on the divergence": (
        "minding/TMaze-v0",
        (
            "policy.model.memory=gru",
            "policy.model.memory_dim=8",
            "policy.other.rnd.weight=0.5",
            "policy.other.icm.weight=0.5",
            "policy.learn.kl_weight=0.5",
        ),
    ),
}

STEPS, BATCH = 3, 16
INDEX = np.tile(np.arange(BATCH), (STEPS, 1))
"""The same minibatch in every step."""
LEARN = {"target_kl": 0.1, "learning_rate": 0.01, "value_clip": True, "entropy_weight": 0.01}
built, bench = kit.benches("ppo", action=discrete(3), count=BATCH, learn=LEARN, **kit.RAW)


def collected(bench, **changes):
    """A rollout as the policy itself would have recorded it, but for `changes`."""
    rows = bench.rows(action=3)
    return {**rows, **bench.policy.collect_mode.forward(rows["obs"]), **changes}


def check_update(bench, rows, lag, weight=1.0, **expected):
    """Metrics of steps that change nothing: they are those of the formula in float64, however many steps are made."""
    bench.hold_still()
    batch = bench.batch(rows, INDEX)
    batch.lag = lag
    p = bench.params
    log_prob, entropy = categorical(scores(p, "net.actor", rows["obs"]), rows["action"])
    advantage = weight * (rows["advantage"] - rows["advantage"].mean()) / (rows["advantage"].std() + 1e-8)
    ratio = np.exp(log_prob - (log_prob if lag else rows["log_prob"]))
    policy_loss = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 0.8, 1.2)).mean()
    # The old value is the present one: the clip changes nothing.
    value_loss, entropy = 0.5 * ((state_value(p, rows["obs"]) - rows["return"]) ** 2).mean(), entropy.mean()
    output = bench.policy.learn_mode.forward(batch)
    expected |= {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "loss": policy_loss + 0.5 * value_loss - 0.01 * entropy,
        "approx_kl": (ratio - 1 - np.log(ratio)).mean(),
        "clip_fraction": (np.abs(ratio - 1) > 0.2).mean(),
    }
    kit.check_metrics(output.metrics, expected, rel=1e-4, abs=1e-5)
    return output, log_prob


def test_the_update_computes_the_loss_of_its_formula(bench):
    old = np.log(np.random.default_rng(1).uniform(0.2, 0.5, BATCH)).astype(np.float32)
    check_update(bench, collected(bench, log_prob=old), lag=0)


def test_an_older_policys_data_are_weighted_and_clipped(bench):
    old = np.log(np.random.default_rng(1).uniform(0.05, 0.9, BATCH)).astype(np.float32)
    rows = collected(bench, log_prob=old, value=np.full(BATCH, 9.0, np.float32))
    log_prob, _ = categorical(scores(bench.params, "net.actor", rows["obs"]), rows["action"])
    weight = np.minimum(np.exp(log_prob - old), 2.0)
    assert (weight == 2.0).any()
    # The update starts from the present policy: no ratio is clipped, and no value either.
    assert check_update(bench, rows, lag=1, weight=weight)[0].steps == STEPS


def test_the_first_step_on_its_own_data_has_no_kl(bench):
    bench.hold_still()
    output = bench.learn(collected(bench), INDEX)
    metrics = output.metrics
    assert output.steps == STEPS
    assert abs(metrics["approx_kl"]) < 1e-6
    assert metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize("steps", [1, STEPS])
def test_a_step_after_too_large_a_change_is_not_made(bench, steps):
    rows, before = collected(bench, log_prob=np.full(BATCH, -5.0, np.float32)), bench.policy.state_dict()["params"]
    output = bench.learn(rows, INDEX[:steps])
    assert output.steps == 0
    assert output.metrics["approx_kl"] > 0.15
    assert output.metrics["grad_norm"] == 0.0
    kit.check_bits(bench.policy.state_dict()["params"], before)


def test_steps_end_before_the_one_that_finds_the_policy_too_far(built):
    """One step moves it beyond the limit: the state is that after this step alone."""
    found = []
    for index in (INDEX, INDEX[:1]):
        bench = built()
        set_rate(bench.policy, 0.3)
        output = bench.learn(collected(bench), index)
        assert output.steps == 1
        found.append(bench.params)
        if len(index) > 1:
            # The mean of 0 in the step made and of what the next one found.
            assert output.metrics["approx_kl"] > 0.15 / 2
    for name, values in found[1].items():
        np.testing.assert_allclose(found[0][name], values, rtol=1e-5, atol=1e-7, err_msg=name)


def test_every_step_on_older_data_compares_with_the_start(built, monkeypatch):
    bench = built()
    bench.settings.normalize_advantage = False
    present = collected(bench)
    older = {
        "log_prob": np.log(np.random.default_rng(1).uniform(0.2, 0.5, BATCH)).astype(np.float32),
        "value": np.full(BATCH, 9.0, np.float32),
    }
    weight = np.minimum(np.exp(present["log_prob"] - older["log_prob"]), 2.0)
    expected = bench.learn({**present, "advantage": present["advantage"] * weight}, INDEX).metrics
    params, bench = bench.params, built()
    bench.settings.normalize_advantage = False
    batch = bench.batch({**present, **older}, INDEX)
    batch.lag = 1
    # All of it happens in the compiled update: what acts is not asked, and the rollout stays as it was collected.
    monkeypatch.setattr(bench.policy.actors["collect"], "network", None)
    before = [table.copy() for table in batch.tables.host]
    assert bench.policy.learn_mode.forward(batch).metrics == pytest.approx(expected, rel=1e-4, abs=1e-6)
    for name, value in bench.params.items():
        np.testing.assert_allclose(value, params[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert all(np.array_equal(table, old) for table, old in zip(batch.tables.host, before))


def test_encoder_actor_and_critic_are_clipped_apart():
    moments, bound = [], 0.01
    for grad_norm in (0.0, bound):
        learn = {"grad_norm": grad_norm, "clip_parts": True}
        bench = kit.Bench(kit.make_policy("ppo", dict_of(a=VECTOR, b=VECTOR), space_of(2), learn), BATCH)
        metrics = bench.learn(bench.rows(), INDEX[:1]).metrics
        moments.append(dict(zip(names_of(bench.policy), gradients(bench.policy, "net"), strict=True)))
    raw, clipped = moments
    parts = {"encoder": ("encoder",), "actor": ("actor", "head"), "critic": ("critic", "value")}
    found: set[str] = set()
    for cells in parts.values():
        names = [name for name in raw if name.split(".")[1] in cells]
        norm = np.sqrt(sum((raw[name] ** 2).sum() for name in names))
        assert norm > bound
        for name in names:
            np.testing.assert_allclose(clipped[name], raw[name] * bound / norm, rtol=1e-3, atol=1e-9, err_msg=name)
        found |= set(names)
    assert found == set(raw)
    whole = np.sqrt(sum((slope**2).sum() for slope in raw.values()))
    assert metrics["grad_norm"] == pytest.approx(whole, rel=1e-3)


# The penalty on the divergence

KL_WEIGHT, AIM = 3.0, 0.01
penalized, _ = kit.benches(
    "ppo",
    count=BATCH,
    kinds={"discrete": {"action": discrete(3)}, "box": {"action": space_of(2)}},
    learn={"kl_weight": KL_WEIGHT, "kl_aim": AIM, "learning_rate": 0.05, "grad_norm": 0.0, "entropy_weight": 0.01},
    **kit.RAW,
)


def recorded_by(bench):
    rows = bench.rows(action=3) if bench.kind == "discrete" else bench.rows()
    return {**rows, **bench.policy.collect_mode.forward(rows["obs"])}


def penalized_loss(p, old, rows):
    """The loss, and the mean divergence from the parameters `old`."""
    head, before = (scores(each, "net.actor", rows["obs"]) for each in (p, old))
    if "net.head.log_std" in p:
        log_std, old_log_std = p["net.head.log_std"], old["net.head.log_std"]
        log_prob, entropy = normal(head, log_std, rows["action"])
        old_log_prob, _ = normal(before, old_log_std, rows["action"])
        apart = (np.exp(2 * old_log_std) + (before - head) ** 2) / (2 * np.exp(2 * log_std))
        divergence = (log_std - old_log_std + apart - 0.5).sum(axis=1)
    else:
        log_prob, entropy = categorical(head, rows["action"])
        old_log_prob, _ = categorical(before, rows["action"])
        log_p, log_q = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (before, head))
        divergence = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    advantage = (rows["advantage"] - rows["advantage"].mean()) / (rows["advantage"].std() + 1e-8)
    ratio = np.exp(log_prob - old_log_prob)
    policy = np.maximum(-advantage * ratio, -advantage * np.clip(ratio, 0.8, 1.2)).mean()
    value = 0.5 * ((state_value(p, rows["obs"]) - rows["return"]) ** 2).mean()
    loss = policy + 0.5 * value - 0.01 * np.mean(entropy) + KL_WEIGHT * divergence.mean()
    return loss, divergence.mean()


@pytest.mark.shared_graphs
@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_the_penalty_is_the_divergence_from_before_step_one(penalized, kind):
    moments, params = [], []
    for steps in (1, 2):
        bench = penalized(kind)
        rows, old = recorded_by(bench), bench.params
        metrics = bench.learn(rows, INDEX[:steps]).metrics
        moments.append([m.asnumpy().astype(np.float64).copy() for m in bench.root.optim.steps[0].m])
        params.append(bench.params)
    losses = [penalized_loss(p, old, rows) for p in (old, params[0])]
    assert losses[1][1] > 1e-3
    kit.check_metrics(metrics, {"loss": np.mean(losses, axis=0)[0], "divergence": losses[1][1] / 2}, rel=1e-3)
    assert metrics["kl_weight"] == KL_WEIGHT
    # The gradient of the second step, from the averages of gradients of Adam.
    found = [(second - 0.9 * first) / 0.1 for first, second in zip(*moments)]
    kit.check_slopes(
        lambda p: penalized_loss(p, old, rows)[0], params[0], names_of(bench.policy), found, rel=2e-3, abs=1e-3
    )


@pytest.mark.shared_graphs
@pytest.mark.parametrize(("divergence", "factor"), [(0.0, 0.5), (AIM / 1.4, 1.0), (1.4 * AIM, 1.0), (1.6 * AIM, 2.0)])
def test_the_weight_of_the_penalty_is_halved_or_doubled(penalized, divergence, factor):
    bench = penalized("discrete")
    bench.policy._adapt(divergence)
    assert float(bench.root.kl_weight.asnumpy()) == factor * KL_WEIGHT
    if not divergence:
        bench.hold_still()
        assert bench.learn(recorded_by(bench), INDEX[:2]).metrics["kl_weight"] == KL_WEIGHT / 2
        assert float(bench.root.kl_weight.asnumpy()) == KL_WEIGHT / 4
