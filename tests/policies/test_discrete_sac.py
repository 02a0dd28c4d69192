"""Discrete SAC: one update against float64 NumPy, gradients by finite differences, legal actions, the temperature."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, dict_of, discrete, draw_masks, mask_of, rows_of, set_rate
from float64_networks import finite_differences, gradients, moved, params

from minding.engine.data import trees
from minding.policies import get_policy_class

MASKED = dict_of(action_mask=mask_of(3), observation=VECTOR)
CONTRACT = {
    "discrete_sac": (VECTOR, discrete(3), {"policy.model.normalize_obs": True, "policy.model.dueling": True}),
    "discrete_sac, masked": (MASKED, discrete(3), {}),
}
LEARNS = {
    "run.max_env_step": 1600,
    "policy.collect.n_sample": 8,
    "policy.learn.batch_size": 32,
    "policy.learn.warmup": 64,
    "policy.learn.update_per_collect": 4,
    "policy.other.buffer_size": 2000,
    "policy.learn.learning_rate": 0.003,
    "policy.learn.alpha": 0.1,
    "policy.learn.target_entropy_share": 0.3,
    "policy.learn.tau": 0.02,
}
RESUMES = {"discrete SAC, random steps first": ("CartPole-v1", ("policy.collect.random_steps=32",))}

BATCH, ACTIONS, RATE, TAU, ALPHA, SHARE = 16, 4, 0.01, 0.25, 0.2, 0.5
CASES = {
    "every action is legal, fixed temperature": (VECTOR, {"policy.learn.auto_alpha": False}),
    "masked": (dict_of(action_mask=mask_of(ACTIONS), observation=VECTOR), {"policy.learn.auto_alpha": True}),
}
SETTINGS = {
    "policy.learn.learning_rate": RATE,
    "policy.learn.tau": TAU,
    "policy.learn.alpha": ALPHA,
    "policy.learn.target_entropy_share": SHARE,
}


@pytest.fixture(scope="module")
def built(tiny_config):
    made = {}
    for case, (space, settings) in CASES.items():
        cfg = tiny_config("discrete_sac", space, discrete(ACTIONS), **SETTINGS, **settings)
        policy = get_policy_class("discrete_sac")(cfg)
        # Away from the start, where all actions are about as likely.
        policy.net.head.linear.weight.asnumpy()[...] *= 300.0
        rng = np.random.default_rng(3)
        for p in policy.root.targets.get_parameters():
            p.asnumpy()[...] += rng.normal(0.0, 0.3, p.shape).astype(np.float32)
        made[case] = policy, Batches(policy, BATCH), copy.deepcopy(policy.state_dict())
    return made


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def policy(built, case):
    """The policy as it was built, with targets that differ from the critics."""
    policy, _, state = built[case]
    policy.load_state_dict(state)
    set_rate(policy, RATE)
    return policy


@pytest.fixture
def batches(built, case):
    return built[case][1]


@pytest.fixture
def rows(batches):
    """Rows of which some end, others are cut by a time limit, and of some actions none is legal after the end."""
    rng = np.random.default_rng(0)
    values = rows_of(batches.layout, BATCH, rng, {"action": ACTIONS})
    values["terminated"] = (np.arange(BATCH) % 4 == 0).astype(np.float32)
    if "obs.action_mask" in values:
        for place in ("obs", "next_obs"):
            values[f"{place}.action_mask"] = draw_masks((ACTIONS,), BATCH, rng)
        values["next_obs.action_mask"][:8:4] = False
        values["action"] = values["obs.action_mask"].argmax(axis=1)
    return values


def layer(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def scores(p, part, last, obs):
    """Outputs (B, A) of a network with one hidden layer."""
    return layer(p, f"{part}.{last}", np.maximum(layer(p, f"{part}.torso.layers.0", obs), 0.0))


def q_values(p, critics, obs):
    """Those of both critics, (2, B, A)."""
    return np.stack([scores(p, f"{critics}.q{i}", "advantage", obs) for i in (1, 2)])


def read(rows, place):
    """Observations, and which actions are legal."""
    obs = rows.get(place, rows.get(f"{place}.observation"))
    return obs, rows.get(f"{place}.action_mask", np.ones((BATCH, ACTIONS), bool))


def expectations(p, critics, rows, place):
    """Values and entropies of states under the policy, (B,) each, summed over the legal actions alone."""
    obs, legal = read(rows, place)
    logits, q = scores(p, "net", "head.linear", obs), q_values(p, critics, obs).min(axis=0)
    alpha, values, entropies = np.exp(p["log_alpha"]), np.zeros(BATCH), np.zeros(BATCH)
    for n in range(BATCH):
        allowed = np.flatnonzero(legal[n])
        if len(allowed):
            log_p = logits[n, allowed] - np.log(np.exp(logits[n, allowed]).sum())
            values[n] = (np.exp(log_p) * (q[n, allowed] - alpha * log_p)).sum()
            entropies[n] = -(np.exp(log_p) * log_p).sum()
    return values, entropies


def target_of(p, rows):
    next_value, _ = expectations(p, "targets", rows, "next_obs")
    return rows["reward"] + rows["discount"] * (1.0 - rows["terminated"]) * next_value


def critic_loss(p, rows, target):
    chosen = q_values(p, "critics", read(rows, "obs")[0])[:, np.arange(BATCH), rows["action"]]
    return 0.5 * ((chosen - target) ** 2).sum(axis=0).mean()


def actor_loss(p, rows):
    return -expectations(p, "critics", rows, "obs")[0].mean()


def alpha_loss(p, rows, entropy):
    largest = np.log(read(rows, "obs")[1].sum(axis=1))
    return (p["log_alpha"] * (entropy - SHARE * largest)).mean()


# The update


def test_losses_and_target_are_those_of_the_formulas(policy, batches, rows):
    p = params(policy)
    output = policy.learn_mode.forward(batches(rows, [range(BATCH)]))
    metrics = output.metrics
    entropy = expectations(p, "critics", rows, "obs")[1]
    assert 0.1 < entropy.mean() < 0.9 * np.log(ACTIONS)
    assert metrics["critic_loss"] == pytest.approx(critic_loss(p, rows, target_of(p, rows)), rel=1e-5)
    assert metrics["actor_loss"] == pytest.approx(actor_loss(p, rows), rel=1e-5, abs=1e-6)
    assert metrics["alpha_loss"] == pytest.approx(alpha_loss(p, rows, entropy), rel=1e-5, abs=5e-6)
    assert metrics["alpha"] == pytest.approx(ALPHA, rel=1e-6)
    assert metrics["entropy"] == pytest.approx(entropy.mean(), rel=1e-5)
    chosen = q_values(p, "critics", read(rows, "obs")[0])[0, np.arange(BATCH), rows["action"]]
    assert metrics["q_value"] == pytest.approx(chosen.mean(), rel=1e-5, abs=1e-6)
    assert output.steps == 1


@pytest.mark.parametrize("case", ["masked"])
def test_gradients_are_finite_differences_of_the_losses(policy, batches, rows, case):
    p = params(policy)
    target, entropy = target_of(p, rows), expectations(p, "critics", rows, "obs")[1]
    policy.learn_mode.forward(batches(rows, [range(BATCH)]))
    # All of them at the parameters before the step.
    expected = {
        "critics": finite_differences(lambda x: critic_loss(x, rows, target), p, "critics"),
        "actor": finite_differences(lambda x: actor_loss(x, rows), p, "net"),
        "alpha": [alpha_loss({"log_alpha": 1.0}, rows, entropy)],
    }
    for group, slopes in expected.items():
        for grad, wanted in zip(gradients(policy, group), slopes, strict=True):
            np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", ["masked"])
def test_a_true_end_cuts_off_what_follows_and_a_time_limit_does_not(policy, batches, rows, case):
    start = copy.deepcopy(policy.state_dict())
    rows["next_obs.action_mask"][:] = True
    losses = {}
    for end in (0.0, 1.0):
        for successor in (0.0, 5.0):
            rows["terminated"] = np.full(BATCH, end, np.float32)
            rows["next_obs.observation"] = np.full((BATCH, 4), successor, np.float32)
            policy.load_state_dict(start)
            losses[end, successor] = policy.learn_mode.forward(batches(rows, [range(BATCH)])).metrics["critic_loss"]
    assert losses[1.0, 0.0] == losses[1.0, 5.0]
    assert abs(losses[0.0, 0.0] - losses[0.0, 5.0]) > 1e-2


def test_every_part_moves_in_every_step_and_targets_follow_by_their_share_of_the_critics_after_it(
    policy, batches, rows, case
):
    batch = batches(rows, [range(BATCH)])
    for _ in range(2):
        old = params(policy)
        policy.learn_mode.forward(batch)
        new = params(policy)
        # A temperature that is not learned stays.
        assert moved(old, new) == {"net", "critics", "targets", *(["log_alpha"] if case == "masked" else [])}
        for name in (name for name in new if name.startswith("targets.")):
            expected = (1 - TAU) * old[name] + TAU * new[name.replace("targets.", "critics.")]
            np.testing.assert_allclose(new[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["masked"])
def test_steps_in_one_call_are_those_of_single_calls(policy, batches, rows, case):
    start = copy.deepcopy(policy.state_dict())
    index = np.stack([np.arange(BATCH), np.arange(BATCH) // 2])
    single = [policy.learn_mode.forward(batches(rows, each[None])).metrics for each in (*index, *index)]
    expected = params(policy)
    policy.load_state_dict(start)
    together = [policy.learn_mode.forward(batches(rows, index)).metrics for _ in range(2)]
    found = params(policy)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    for name in policy.root.metrics:
        means = [np.mean([single[2 * k + i][name] for i in (0, 1)]) for k in (0, 1)]
        assert [metrics[name] for metrics in together] == pytest.approx(means, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("case", ["masked"])
def test_the_temperature_falls_while_the_entropy_is_above_its_target_and_rises_below(policy, batches, rows, case):
    batch, head = batches(rows, [range(BATCH)]), policy.net.head.linear
    head.weight.asnumpy()[...] = 0.0
    for bias, sign in ((0.0, -1), (20.0, 1)):
        head.bias.asnumpy()[...] = bias * np.arange(ACTIONS)
        before = float(policy.root.log_alpha.asnumpy())
        policy.learn_mode.forward(batch)
        assert np.sign(float(policy.root.log_alpha.asnumpy()) - before) == sign


def test_the_critics_differ_and_begin_equal_to_their_targets(tiny_config):
    root = get_policy_class("discrete_sac")(tiny_config("discrete_sac", VECTOR, discrete(ACTIONS))).root
    first, second = root.critics.q1.advantage.weight.asnumpy(), root.critics.q2.advantage.weight.asnumpy()
    assert not np.array_equal(first, second)
    for online, target in zip(root.critics.get_parameters(), root.targets.get_parameters(), strict=True):
        assert np.array_equal(online.asnumpy(), target.asnumpy())


# Masks


@pytest.mark.parametrize("case", ["masked"])
def test_an_action_that_is_never_legal_neither_counts_nor_moves(policy, batches, rows, case):
    start = copy.deepcopy(policy.state_dict())
    for place in ("obs", "next_obs"):
        rows[f"{place}.action_mask"][:, 1] = True
        rows[f"{place}.action_mask"][:, 3] = False
    rows["action"][:] = 1
    batch, seen = batches(rows, [range(BATCH)]), []
    root = policy.root
    layers = [policy.net.head.linear, *(q.advantage for c in (root.critics, root.targets) for q in (c.q1, c.q2))]
    for shift in (0.0, 50.0):
        policy.load_state_dict(start)
        for each in layers:
            each.bias.asnumpy()[3] += shift
        before = [each.weight.asnumpy()[3].copy() for each in layers[:3]]
        seen.append(policy.learn_mode.forward(batch).metrics)
        for each, weight in zip(layers[:3], before):
            assert np.array_equal(each.weight.asnumpy()[3], weight)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("case", ["masked"])
def test_actions_are_drawn_by_their_probabilities_and_legal(policy, rows, case):
    obs, legal = read(rows, "obs")
    p, draws = params(policy), 4000
    logits = np.where(legal, scores(p, "net", "head.linear", obs), -np.inf)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    many = {"action_mask": np.repeat(legal, draws, axis=0), "observation": np.repeat(obs, draws, axis=0)}
    action = policy.collect_mode.forward(trees.from_nested(many))["action"].reshape(BATCH, draws)
    shares = (action[..., None] == np.arange(ACTIONS)).mean(axis=1)
    np.testing.assert_allclose(shares, expected, atol=0.04)
    assert not shares[~legal].any()
    best = policy.eval_mode.forward(trees.from_nested({"action_mask": legal, "observation": obs}))
    assert np.array_equal(best, expected.argmax(axis=1))
    by_chance = policy.collect_mode.forward(trees.from_nested(many), random=True)["action"].reshape(BATCH, draws)
    assert [set(row) for row in by_chance.tolist()] == [set(np.flatnonzero(row)) for row in legal]
