"""DDPG: one update against float64 NumPy, gradients by finite differences, the targets, exploration."""

import copy

import numpy as np
import pytest
from fakes import VECTOR, Batches, rows_of, set_rate, space_of
from float64_networks import actor, finite_differences, gradients, moved, params, replaced, value

from minding.policies import get_policy_class

CONTRACT = {
    "ddpg": (VECTOR, space_of(3), {"policy.model.normalize_obs": True}),
    "ddpg, Gaussian noise": (VECTOR, space_of(2), {"policy.collect.noise.kind": "gaussian"}),
}
LEARNS = {
    "run.max_env_step": 1600,
    "policy.collect.n_sample": 8,
    "policy.learn.batch_size": 32,
    "policy.learn.warmup": 64,
    "policy.learn.update_per_collect": 4,
    "policy.other.buffer_size": 2000,
    # The gradient of a deterministic actor is local, and the values of the probe are steps. With a linear critic the
    # slope is the same everywhere: an actor that the first values drew to the wrong end finds back.
    "policy.model.hidden": [],
    "policy.learn.learning_rate": 0.01,
    "policy.learn.tau": 0.05,
    "policy.collect.random_steps": 400,
    "policy.collect.noise.sigma": 0.4,
}
RESUMES = {}
"""TD3's has all that it keeps, and a second critic."""

BATCH, RATE, TAU = 16, 0.01, 0.25
ACTION = space_of(2)


@pytest.fixture(scope="module")
def built(tiny_config):
    cfg = tiny_config("ddpg", VECTOR, ACTION, **{"policy.learn.learning_rate": RATE, "policy.learn.tau": TAU})
    return get_policy_class("ddpg")(cfg)


@pytest.fixture
def policy(built):
    """The policy as it was built, with targets that differ from the networks."""
    state = copy.deepcopy(built.state_dict())
    for cell in (built.root.target_net, built.root.target_critic):
        for p in cell.get_parameters():
            p.asnumpy()[...] += 0.1
    yield built
    built.load_state_dict(state)
    set_rate(built, RATE)


@pytest.fixture(scope="module")
def batches(built):
    return Batches(built, BATCH)


@pytest.fixture
def rows(batches):
    """Rows of which some end and others are cut by a time limit."""
    values = rows_of(batches.layout, BATCH, np.random.default_rng(0))
    values["terminated"] = (np.arange(BATCH) % 4 == 0).astype(np.float32)
    values["action"] = np.tanh(values["action"])
    return values


def target_of(p, rows):
    next_value = value(p, "target_critic", actor(p, "target_net", rows["next_obs"]), rows["next_obs"])
    return rows["reward"] + rows["discount"] * (1.0 - rows["terminated"]) * next_value


def critic_loss(p, rows, target):
    return 0.5 * np.mean((value(p, "critic", rows["action"], rows["obs"]) - target) ** 2)


def actor_loss(p, rows):
    return -value(p, "critic", actor(p, "net", rows["obs"]), rows["obs"]).mean()


def test_losses_and_target_are_those_of_the_formulas(policy, batches, rows):
    p = params(policy)
    metrics = policy.learn_mode.forward(batches(rows, [range(BATCH)])).metrics
    assert metrics["critic_loss"] == pytest.approx(critic_loss(p, rows, target_of(p, rows)), rel=1e-5)
    q = value(p, "critic", rows["action"], rows["obs"])
    assert metrics["q_value"] == pytest.approx(q.mean(), rel=1e-5, abs=1e-6)
    # The actor is judged by the critic after its step.
    after = replaced(p, policy, "critic")
    assert metrics["actor_loss"] == pytest.approx(actor_loss(after, rows), rel=1e-5, abs=1e-6)
    assert abs(actor_loss(after, rows) - actor_loss(p, rows)) > 1e-3


def test_gradients_are_finite_differences_of_the_losses(policy, batches, rows):
    p = params(policy)
    target = target_of(p, rows)
    policy.learn_mode.forward(batches(rows, [range(BATCH)]))
    after = replaced(p, policy, "critic")
    expected = {
        "critic": finite_differences(lambda x: critic_loss(x, rows, target), p, "critic"),
        "actor": finite_differences(lambda x: actor_loss(x, rows), after, "net"),
    }
    for group, slopes in expected.items():
        for grad, wanted in zip(gradients(policy, group), slopes, strict=True):
            np.testing.assert_allclose(grad, wanted, rtol=1e-4, atol=1e-6)


def test_a_true_end_cuts_off_what_follows_and_a_time_limit_does_not(policy, batches, rows):
    start = copy.deepcopy(policy.state_dict())
    losses = {}
    for end in (0.0, 1.0):
        for successor in (0.0, 5.0):
            rows["terminated"] = np.full(BATCH, end, np.float32)
            rows["next_obs"] = np.full((BATCH, 4), successor, np.float32)
            policy.load_state_dict(start)
            metrics = policy.learn_mode.forward(batches(rows, [range(BATCH)])).metrics
            losses[end, successor] = metrics["critic_loss"]
    assert losses[1.0, 0.0] == losses[1.0, 5.0]
    assert abs(losses[0.0, 0.0] - losses[0.0, 5.0]) > 1e-2


def test_every_part_moves_in_every_step_and_targets_follow_by_their_share_of_the_networks_after_it(
    policy, batches, rows
):
    batch = batches(rows, [range(BATCH)])
    for _ in range(2):
        old = params(policy)
        policy.learn_mode.forward(batch)
        new = params(policy)
        assert moved(old, new) == {"net", "target_net", "critic", "target_critic"}
        for name in (name for name in new if name.startswith("target_")):
            expected = (1 - TAU) * old[name] + TAU * new[name.removeprefix("target_")]
            np.testing.assert_allclose(new[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_steps_in_one_call_are_those_of_single_calls(policy, batches, rows):
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


def test_networks_begin_equal_to_their_targets(tiny_config):
    root = get_policy_class("ddpg")(tiny_config("ddpg", VECTOR, ACTION)).root
    for online, target in ((root.net, root.target_net), (root.critic, root.target_critic)):
        for a, b in zip(online.get_parameters(), target.get_parameters(), strict=True):
            assert np.array_equal(a.asnumpy(), b.asnumpy())


def test_the_noise_drifts_within_an_episode_and_begins_at_zero_in_the_next(tiny_config):
    policy = get_policy_class("ddpg")(tiny_config("ddpg", VECTOR, space_of(3, 2)), modes=("collect", "eval"))
    obs = np.random.default_rng(0).standard_normal((500, 4)).astype(np.float32)
    mode = policy.collect_mode
    greedy = policy.eval_mode.forward(obs)
    noise = []
    for _ in range(30):
        action = mode.forward(obs)["action"]
        assert (action.shape, action.dtype) == ((500, 3, 2), np.float32)
        assert np.abs(action).max() <= 1.0
        noise.append(action - greedy)
    inside = np.abs(greedy) < 0.2
    # The deviation is 0.2 in the first step, and 0.38 in the long run, less what the limits cut off.
    assert noise[0][inside].std() == pytest.approx(0.2, rel=0.1)
    assert 0.3 < noise[-1][inside].std() < 0.39
    assert np.corrcoef(noise[-1][inside], noise[-2][inside])[0, 1] > 0.75
    mode.reset(np.arange(250))
    noise = mode.forward(obs)["action"] - greedy
    begun = np.arange(500) < 250
    assert noise[begun][inside[begun]].std() == pytest.approx(0.2, rel=0.1)
    assert noise[~begun][inside[~begun]].std() > 0.3
